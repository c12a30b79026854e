/* A bare server for the generator: no protocol, no checks, no logs, one thread. Its rates are the
 * limit of one thread that receives and writes, or sends a file.
 *
 * All bytes of produce requests that one recv brought take one pwrite to the connection's file, and
 * one send answers the complete requests among them by zeros. A fetch is answered with as many bytes
 * as it requests. The generator reads no other part of an answer.
 *
 * Socket buffers have a fixed size, so the kernel does not grow them. Measured with 64, 128 and 256 KB
 * for buffers and reads: 1 MiB requests reach 1.4 to 1.7 GB/s if either is at most 128 KB, and 0.6 to
 * 1.3 GB/s with 256 KB for both, because a core has 1 MiB of cache. The sizes do not change 16 KB
 * requests and fetches, nor does sendmsg in place of sendfile for 16 KB answers.
 *
 * Run: ceiling FOLDER FILE ANSWER_BYTES RECORDS_AT OFFSET_AT
 *   FILE holds the bytes of fetch answers; ANSWER_BYTES: size of a produce answer behind its size
 *   field; RECORDS_AT: position in an answer, from the correlation id; OFFSET_AT: position in a fetch
 *   request, from its size field.
 * It prints the port on which it listens, and exits at the end of its standard input.
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

enum { READ = 128 << 10, SOCKET_BUFFER = 128 << 10, FILE_BYTES_MAX = 1 << 30 };
enum { PRODUCE = 0, HEADER = 12, FETCH_MAX = 1024, MAX_BYTES_BEHIND_OFFSET = 20, TAGS = 3 };
enum { ANSWER_MAX = 512, ANSWERS_MAX = 64 * ANSWER_MAX };

struct connection {
    int fd, out_fd;
    char *bytes;                    /* of requests, their sizes in front */
    int64_t have, written;
    int32_t id;                     /* of the request that is being received, in network order */
    int64_t rest;                   /* its bytes that are still to come */
    char answers[ANSWERS_MAX];
    int64_t answers_sent, answers_size;
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

static void answer_produce(struct connection *c) {
    char *answer = c->answers + c->answers_size;
    memset(answer, 0, 4 + answer_bytes);
    write_32(answer, answer_bytes);
    memcpy(answer + 4, &c->id, 4);
    c->answers_size += 4 + answer_bytes;
}

static void answer_fetch(struct connection *c) {
    int64_t wanted = read_32(c->bytes + offset_at + MAX_BYTES_BEHIND_OFFSET);
    if (wanted > file_bytes) fail("a fetch requests more than the file holds");
    if (c->place + wanted > file_bytes) c->place = 0;
    memset(c->answers, 0, ANSWER_MAX);
    memcpy(c->answers + 4, c->bytes + 8, 4);
    char *at = c->answers + 4 + records_at;
    for (uint64_t left = wanted + 1;; left >>= 7) {
        *at++ = (left & 0x7f) | (left > 0x7f ? 0x80 : 0);
        if (left <= 0x7f) break;
    }
    c->answers_size = at - c->answers;
    c->file_left = wanted;
    c->tags_left = TAGS;
    write_32(c->answers, c->answers_size - 4 + wanted + TAGS);
}

/* Returns 0 when the socket takes no more now. */
static int flush(struct connection *c) {
    static const char tags[TAGS];
    while (c->answers_sent < c->answers_size) {
        int more = c->file_left ? MSG_MORE : 0;
        ssize_t sent = send(c->fd, c->answers + c->answers_sent, c->answers_size - c->answers_sent, more);
        if (sent < 0) return 0;
        c->answers_sent += sent;
    }
    c->answers_sent = c->answers_size = 0;
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
    free(c->bytes);
    free(c);
}

/* Writes the received part of produce requests and answers those that end in it, or answers a fetch;
 * returns 0 when more bytes must come first. */
static int take_requests(struct connection *c) {
    int64_t taken = 0;
    while (c->answers_size + ANSWER_MAX <= ANSWERS_MAX) {
        int64_t left = c->have - taken;
        if (!c->rest) {
            if (left < HEADER) break;
            const char *request = c->bytes + taken;
            int64_t size = 4 + (int64_t)read_32(request);
            if (request[5] != PRODUCE) {
                if (taken) break;
                if (size > FETCH_MAX) fail("a fetch request is too large");
                if (left < size) return 0;
                answer_fetch(c);
                c->have = 0; /* a client has one fetch in flight */
                return 1;
            }
            memcpy(&c->id, request + 8, 4);
            c->rest = size;
        }
        if (!left) break;
        int64_t part = c->rest < left ? c->rest : left;
        taken += part;
        if (!(c->rest -= part)) answer_produce(c);
    }
    if (!taken) return 0;
    if (c->written + taken > FILE_BYTES_MAX) c->written = 0;
    if (pwrite(c->out_fd, c->bytes, taken, c->written) != taken) fail("writing");
    c->written += taken;
    memmove(c->bytes, c->bytes + taken, c->have -= taken);
    return 1;
}

static void serve(struct connection *c) {
    int is_drained = 0;
    while (flush(c)) {
        if (take_requests(c)) continue;
        if (is_drained) return; /* the next arrival is a new event */
        ssize_t come = recv(c->fd, c->bytes + c->have, READ, 0);
        if (come < 0 && errno == EAGAIN) return;
        if (come <= 0) {
            end(c);
            return;
        }
        c->have += come;
        is_drained = come < READ;
    }
    if (errno != EAGAIN) end(c);
}

static void take(int listener) {
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct connection *c = calloc(1, sizeof *c);
    if (fd < 0 || !c || !(c->bytes = malloc(FETCH_MAX + READ))) fail("a connection");
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
    int size = SOCKET_BUFFER;
    if (setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof size)
        || setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &size, sizeof size)) fail("socket buffers");
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
