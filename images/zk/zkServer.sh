#!/bin/sh
# `zkServer.sh start-foreground`, the only command a container needs.
[ "$1" = start-foreground ] || { echo "only start-foreground is supported here" >&2; exit 2; }
# shellcheck disable=SC2086  # JVMFLAGS is a list of words
exec java $JVMFLAGS -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar:/usr/share/java/netty-codec.jar \
  org.apache.zookeeper.server.quorum.QuorumPeerMain "${ZOO_CONF_DIR:-/conf}/zoo.cfg"
