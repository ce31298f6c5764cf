// SET NX PX over a socket, in C, and built as a static program: nothing but system calls.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char host[64], port[16], lease[16], held[32], held_lock[64];
static int link_to = -1;

// The text or number of a field of a request.
static void field(const char *line, const char *name, char *into, size_t size) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *from = strstr(line, key);
  into[0] = 0;
  if (!from) return;
  from += strlen(key);
  while (*from == ' ' || *from == '"' || *from == '[') from++;
  size_t length = strcspn(from, "\",}]");
  snprintf(into, size, "%.*s", (int)length, from);
}

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static int lose(void) {
  close(link_to);
  link_to = -1;
  return -1;
}

// One line of an answer, or -1 when there is none within a second.
static int answer(char *line, size_t size) {
  size_t length = 0;
  while (length + 1 < size) {
    struct pollfd wanted = {link_to, POLLIN, 0};
    if (poll(&wanted, 1, 1000) != 1 || read(link_to, line + length, 1) != 1) return lose();
    if (line[length] == '\n') break;
    length++;
  }
  line[length] = 0;
  return 0;
}

static int ask(const char **words, int count, char *line, size_t size) {
  char text[1024];
  int size_of_text = sprintf(text, "*%d\r\n", count);
  for (int word = 0; word < count; word++) size_of_text += sprintf(text + size_of_text, "$%zu\r\n%s\r\n", strlen(words[word]), words[word]);
  if (link_to < 0) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    inet_pton(AF_INET, host, &to.sin_addr);
    link_to = socket(AF_INET, SOCK_STREAM, 0);
    // a new socket has no error, whatever became of the one before
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(link_to, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) return lose();
    if (connect(link_to, (struct sockaddr *)&to, sizeof to) != 0) return lose();
    int yes = 1;
    setsockopt(link_to, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  if (write(link_to, text, size_of_text) != size_of_text) return lose();
  return answer(line, size);
}

static const char *perform(const char *line) {
  static char told[128];
  char op[32], lock[32], wait[32], name[64], got[256];
  field(line, "op", op, sizeof op);
  field(line, "lock", lock, sizeof lock);
  snprintf(name, sizeof name, "harness:%s", lock);
  if (!strcmp(op, "open")) {
    char at[96];
    field(line, "endpoints", at, sizeof at);
    field(line, "lease_ms", lease, sizeof lease);
    char *colon = strrchr(at, ':');
    snprintf(port, sizeof port, "%s", colon + 1);
    snprintf(host, sizeof host, "%.*s", (int)(colon - at), at);
  } else if (!strcmp(op, "acquire")) {
    unsigned long long drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) abort();
    snprintf(held, sizeof held, "%llx", drawn);
    snprintf(held_lock, sizeof held_lock, "%s", name);
    field(line, "wait_ms", wait, sizeof wait);
    long long end = now_ms() + atoll(wait);
    const char *words[] = {"SET", name, held, "NX", "PX", lease};
    for (;;) {
      if (ask(words, 6, got, sizeof got) != 0) return "\"type\":\"info\",\"error\":\"no answer\"";
      if (!strncmp(got, "+OK", 3)) break;
      if (now_ms() >= end) return "\"type\":\"fail\",\"error\":\"timeout\"";
      usleep(10000 + drawn % 20000);
    }
    snprintf(told, sizeof told, "\"type\":\"ok\",\"owner\":\"%s\"", held);
    return told;
  } else if (!strcmp(op, "release")) {
    const char *script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    const char *words[] = {"EVAL", script, "1", held_lock, held};
    if (ask(words, 5, got, sizeof got) != 0) return "\"type\":\"info\",\"error\":\"no answer\"";
    if (strncmp(got, ":1", 2)) return "\"type\":\"fail\",\"error\":\"not held\"";
  }
  return "\"type\":\"ok\"";
}

int main(void) {
  char line[4096], id[32];
  while (fgets(line, sizeof line, stdin)) {
    field(line, "id", id, sizeof id);
    printf("{\"id\":%s,%s}\n", id, perform(line));
    fflush(stdout);
  }
  return 0;
}
