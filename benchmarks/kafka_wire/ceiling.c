/* The least that could answer the generator: no protocol, no checks, no logs, one thread.
 *
 * A produce request is received into memory and written to a file as it is, and answered by zeros.
 * A fetch is answered by as many bytes of a file as it asks for, by sendfile from the page cache.
 * Both have the shape that the generator looks at, and nothing else of an answer.
 *
 * Run: ceiling FOLDER FILE ANSWER_BYTES RECORDS_AT OFFSET_AT
 *   FILE has what fetches get; ANSWER_BYTES: of a produce answer behind its size; RECORDS_AT: in an
 *   answer, from the correlation id on; OFFSET_AT: in a fetch request, from its size on.
 * It prints the port on which it listens, and ends with its standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FRAME_MAX = 2 << 20, ANSWER_MAX = 512, MAX_BYTES_BEHIND_OFFSET = 20, TAGS = 3 };
enum { PRODUCE = 0, FILE_BYTES_MAX = 1 << 30 };

struct connection {
    int fd, out_fd;
    char *frame;                    /* a request, its size in front */
    int64_t have, written;
    char answer[ANSWER_MAX];
    int64_t answer_left, answer_size;
    int64_t place, file_left, tags_left; /* of a fetch answer */
};

static int file_fd, poll_fd;
static int64_t file_bytes, answer_bytes, records_at, offset_at;
static const char *folder;

static void fail(const char *what) {
    fprintf(stderr, "ceiling: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int32_t read_32(const char *p) { int32_t v; memcpy(&v, p, 4); return be32toh(v); }
static void write_32(char *p, int32_t v) { v = htobe32(v); memcpy(p, &v, 4); }

static void answer_produce(struct connection *c, int64_t size) {
    if (c->written + size > FILE_BYTES_MAX) c->written = 0;
    if (pwrite(c->out_fd, c->frame, size, c->written) != size) fail("writing");
    c->written += size;
    c->answer_size = c->answer_left = 4 + answer_bytes;
    memset(c->answer, 0, c->answer_size);
    write_32(c->answer, answer_bytes);
}

static void answer_fetch(struct connection *c) {
    int64_t wanted = read_32(c->frame + offset_at + MAX_BYTES_BEHIND_OFFSET);
    if (wanted > file_bytes) fail("more is asked for than there is");
    if (c->place + wanted > file_bytes) c->place = 0;
    memset(c->answer, 0, sizeof c->answer);
    char *at = c->answer + 4 + records_at;
    for (uint64_t left = wanted + 1;; left >>= 7) {
        *at++ = (left & 0x7f) | (left > 0x7f ? 0x80 : 0);
        if (left <= 0x7f) break;
    }
    c->answer_size = c->answer_left = at - c->answer;
    c->file_left = wanted;
    c->tags_left = TAGS;
    write_32(c->answer, c->answer_size - 4 + wanted + TAGS);
}

/* Returns 0 when the socket takes no more now. */
static int flush(struct connection *c) {
    static const char tags[TAGS];
    while (c->answer_left) {
        int more = c->file_left ? MSG_MORE : 0;
        ssize_t sent = send(c->fd, c->answer + c->answer_size - c->answer_left, c->answer_left, more);
        if (sent < 0) return 0;
        c->answer_left -= sent;
    }
    while (c->file_left) {
        off_t at = c->place;
        ssize_t sent = sendfile(c->fd, file_fd, &at, c->file_left);
        if (sent < 0) return 0;
        c->place += sent;
        c->file_left -= sent;
    }
    while (c->tags_left) {
        ssize_t sent = send(c->fd, tags, c->tags_left, 0);
        if (sent < 0) return 0;
        c->tags_left -= sent;
    }
    return 1;
}

static void end(struct connection *c) {
    close(c->fd);
    close(c->out_fd);
    free(c->frame);
    free(c);
}

static void serve(struct connection *c) {
    while (flush(c)) {
        int64_t size = c->have < 4 ? 4 : 4 + (int64_t)read_32(c->frame);
        if (size > FRAME_MAX) fail("a request is too large");
        if (c->have >= 4 && c->have == size) {
            if (c->frame[5] == PRODUCE) answer_produce(c, size); else answer_fetch(c);
            memcpy(c->answer + 4, c->frame + 8, 4); /* the correlation id */
            c->have = 0;
            continue;
        }
        ssize_t come = recv(c->fd, c->frame + c->have, size - c->have, 0);
        if (come < 0 && errno == EAGAIN) return;
        if (come <= 0) {
            end(c);
            return;
        }
        c->have += come;
    }
    if (errno != EAGAIN) end(c);
}

static void take(int listener) {
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct connection *c = calloc(1, sizeof *c);
    if (fd < 0 || !c || !(c->frame = malloc(FRAME_MAX))) fail("a connection");
    c->fd = fd;
    c->out_fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (c->out_fd < 0) fail("a file");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = { EPOLLIN | EPOLLOUT | EPOLLET, { .ptr = c } };
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event)) fail("epoll");
}

int main(int count, char **words) {
    struct stat about;
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof here;
    if (count != 6) fail("FOLDER FILE ANSWER_BYTES RECORDS_AT OFFSET_AT");
    signal(SIGPIPE, SIG_IGN);
    folder = words[1];
    file_fd = open(words[2], O_RDONLY | O_CLOEXEC);
    if (file_fd < 0 || fstat(file_fd, &about)) fail(words[2]);
    file_bytes = about.st_size;
    answer_bytes = atol(words[3]);
    records_at = atol(words[4]);
    offset_at = atol(words[5]);
    if (answer_bytes + 4 > ANSWER_MAX || records_at + 16 > ANSWER_MAX) fail("an answer's size");
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 64)
        || getsockname(listener, (struct sockaddr *)&here, &length)) fail("listening");
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event arrivals = { EPOLLIN, { .ptr = &listener } };
    struct epoll_event over = { EPOLLIN, { .ptr = NULL } };
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &arrivals)
        || epoll_ctl(poll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &over)) fail("epoll");
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(poll_fd, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            if (!events[i].data.ptr) return 0;
            if (events[i].data.ptr == &listener) take(listener); else serve(events[i].data.ptr);
        }
    }
}
