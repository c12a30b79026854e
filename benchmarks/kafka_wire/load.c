/* A load generator that costs less than a broker: it replays encoded requests, and reads
 * only the size, correlation id and error codes of a response.
 *
 * One thread over epoll. Produce requests are in a file in memory and are sent by sendfile, without a
 * copy on this side; of a fetch response the first bytes are read and the kernel discards the rest
 * (MSG_TRUNC). The remaining cost is that of any client on this machine.
 *
 * Standard input has one instruction a line (numbers in bytes, ns, or records):
 *   frames PATH                       the file of encoded requests, each after its size
 *   phases WARM_NS MEASURE_NS DRAIN_NS CAP_BYTES   the cap ends the measured phase early,
 *                                     an eighth of it the warm one; 0: none
 *   pid PID                           a process to measure the CPU time of, repeatable
 *   start NS                          between requests of the whole schedule; 0: closed loops
 *   tls PORT TLS_PORT                 connect to the second port, with TLS, in place of the first
 *   produce PORT AT SIZE COUNT BATCHES_BYTES WINDOW ERROR_AT
 *   fetch PORT AT SIZE ERROR_AT RECORDS_AT OFFSET_AT RECORDS BATCH_BYTES WANT FIRST END
 *   tail PORT AT SIZE ERROR_AT RECORDS_AT OFFSET_AT RECORDS BATCH_BYTES PRODUCER
 * and prints one JSON object. Positions count from the correlation id of an answer, or from the
 * size of a request. A closed loop keeps WINDOW requests in flight on its connection, or one fetch,
 * which continues where the answer ended and restarts at the end; an open one sends by the clock,
 * without waiting for answers, and counts latency from the due time of a request.
 *
 * With -DTLS (OpenSSL) connections use TLS 1.3 without verification of the broker's certificate.
 * Frames are then encrypted from memory, and answers are decrypted and dropped.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/ssl.h>
#endif

enum { CONNECTIONS_MAX = 256, PIDS_MAX = 64, CODES = 256, CODES_BELOW = 8, BUFFER = 16384 };
enum { HEAD = 192, FRAME_MAX = 4096, TIMER_SLACK_NS = 1000, DISCARD = 1 << 20, PIECE = 128 << 10 };
enum kind { PRODUCE, FETCH, TAIL };

struct connection {
    enum kind kind;
    int fd, port, watches_output, low;
    int64_t at, size, count, window; /* of its frames in the file */
    int64_t error_at, records_at, offset_at;
    int64_t payload;                /* bytes of batches in a produce request, or wanted of a fetch */
    int64_t first, end;             /* a fetch: its first and last offset */
    int64_t records, batch_bytes;   /* of one batch */
    struct connection *producer;    /* a tail: the connection that writes its partition */
    int64_t number;                 /* of producers: its place in the schedule */
    int64_t out;                    /* bytes sent so far; produce requests are all of one size */
    int64_t asked, done, due;       /* requests */
    int64_t next_offset, seen;      /* a fetch: its next offset; a tail: batches received */
    char frame[FRAME_MAX];          /* a fetch: the request, patched */
    int64_t frame_left;             /* bytes of it that have not left */
    char buffer[BUFFER];
    int64_t have, skip;             /* bytes in it; bytes of an answer to discard */
#ifdef TLS
    SSL *tls;
#endif
};

struct samples { uint32_t *us; int64_t count, room; };

static struct connection *connections[CONNECTIONS_MAX];
static int connection_count, producer_count, pids[PIDS_MAX], pid_count, frames_fd = -1, poll_fd;
static char *frames;
static int64_t warm_ns, measure_ns, drain_ns, cap_bytes, interval_ns;
static int64_t origin_ns, begin_ns, end_ns;   /* of the schedule, of what counts */
static int64_t bytes, requests, errors[CODES], other_sizes;
static struct samples acknowledged, delivered;
static char scratch[DISCARD];
static int is_sending = 1;

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "that is not expected");
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int16_t read_16(const char *p) { int16_t v; memcpy(&v, p, 2); return be16toh(v); }
static int32_t read_32(const char *p) { int32_t v; memcpy(&v, p, 4); return be32toh(v); }

static int64_t read_varint(const char *p) {
    int64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7, p++) {
        value |= (int64_t)(*p & 0x7f) << shift;
        if (!(*p & 0x80)) break;
    }
    return value;
}

static void keep(struct samples *samples, int64_t ns) {
    if (samples->count == samples->room) {
        samples->room = samples->room ? samples->room * 2 : 65536;
        samples->us = realloc(samples->us, samples->room * sizeof *samples->us);
        if (!samples->us) fail("memory");
    }
    int64_t us = ns / 1000;
    samples->us[samples->count++] = us > UINT32_MAX ? UINT32_MAX : us < 0 ? 0 : us;
}

/* --- bytes ----------------------------------------------------------------------------------- */

#ifdef TLS
enum { TLS_PIECE = 256 << 10 };
static int plain_ports[PIDS_MAX], tls_ports[PIDS_MAX], tls_count;
static SSL_CTX *context;

/* The result of a call of OpenSSL, as that of a system call. */
static ssize_t result_of(struct connection *c, int count) {
    if (count > 0) return count;
    int code = SSL_get_error(c->tls, count);
    errno = code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return code == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static ssize_t send_bytes(struct connection *c, const char *from, size_t size) {
    return result_of(c, SSL_write(c->tls, from, size));
}

static ssize_t send_frames(struct connection *c, off_t at, size_t size) {
    return send_bytes(c, frames + at, size < TLS_PIECE ? size : TLS_PIECE);
}

static ssize_t receive_bytes(struct connection *c, char *into, size_t size, int is_dropped) {
    (void)is_dropped;
    return result_of(c, SSL_read(c->tls, into, size));
}

static void begin_tls(struct connection *c) {
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        if (!context || !SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION)) fail("TLS");
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(context, 1);
        SSL_CTX_set_default_read_buffer_len(context, TLS_PIECE);
    }
    c->tls = SSL_new(context);
    if (!c->tls || !SSL_set_fd(c->tls, c->fd) || SSL_connect(c->tls) != 1) fail("a TLS handshake");
}

static int port_of(struct connection *c) {
    for (int i = 0; i < tls_count; i++) if (plain_ports[i] == c->port) return tls_ports[i];
    errno = 0;
    fail("a port without TLS");
    return 0;
}
#else
static ssize_t send_bytes(struct connection *c, const char *from, size_t size) {
    return send(c->fd, from, size, 0);
}

static ssize_t send_frames(struct connection *c, off_t at, size_t size) {
    return sendfile(c->fd, frames_fd, &at, size);
}

static ssize_t receive_bytes(struct connection *c, char *into, size_t size, int is_dropped) {
    return recv(c->fd, into, size, is_dropped ? MSG_TRUNC : 0);
}

static void begin_tls(struct connection *c) { (void)c; }
static int port_of(struct connection *c) { return c->port; }
#endif

/* --- processor time -------------------------------------------------------------------------- */

static double cpu_of(int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) fail("a process that is measured is gone");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    char *at = strrchr(text, ')');
    unsigned long user, system;
    if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                      &user, &system) != 2) fail("/proc/PID/stat");
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

static double cpu_of_all(void) {
    double sum = 0;
    for (int i = 0; i < pid_count; i++) sum += cpu_of(pids[i]);
    return sum;
}

static double cpu_of_self(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec
        + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double cpu_of_machine(void) {
    unsigned long user, nice, system, idle, wait, hard, soft, steal;
    FILE *file = fopen("/proc/stat", "r");
    if (!file || fscanf(file, "cpu %lu %lu %lu %lu %lu %lu %lu %lu", &user, &nice, &system, &idle,
                        &wait, &hard, &soft, &steal) != 8) fail("/proc/stat");
    fclose(file);
    return (double)(user + nice + system + hard + soft + steal) / sysconf(_SC_CLK_TCK);
}

/* --- sending --------------------------------------------------------------------------------- */

static int64_t due_ns(struct connection *c, int64_t n) {
    return origin_ns + (n * producer_count + c->number) * interval_ns;
}

static void watch_output(struct connection *c, int wanted) {
    if (c->watches_output == wanted) return;
    struct epoll_event event = { EPOLLIN | (wanted ? EPOLLOUT : 0), { .ptr = c } };
    if (epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll");
    c->watches_output = wanted;
}

static void produce(struct connection *c) {
    int64_t limit = (interval_ns ? c->due : c->done + c->window) * c->size;
    if (!is_sending && !interval_ns) limit = (c->out + c->size - 1) / c->size * c->size;
    while (c->out < limit) {
        int64_t place = c->out % (c->count * c->size), left = c->count * c->size - place;
        ssize_t sent = send_frames(c, c->at + place, left < limit - c->out ? left : limit - c->out);
        if (sent < 0) {
            if (errno != EAGAIN) fail("sending a produce request");
            watch_output(c, 1);
            return;
        }
        c->out += sent;
    }
    watch_output(c, 0);
}

static void fetch(struct connection *c) {
    for (;;) {
        if (!c->frame_left) {
            if ((!is_sending && c->kind == FETCH) || c->asked - c->done >= c->window) break;
            int64_t offset = htobe64(c->next_offset);
            memcpy(c->frame + c->offset_at, &offset, sizeof offset);
            c->frame_left = c->size;
            c->asked++;
        }
        ssize_t sent = send_bytes(c, c->frame + c->size - c->frame_left, c->frame_left);
        if (sent < 0) {
            if (errno != EAGAIN) fail("sending a fetch request");
            watch_output(c, 1);
            return;
        }
        c->frame_left -= sent;
    }
    watch_output(c, 0);
}

/* --- answers --------------------------------------------------------------------------------- */

static void count_error(struct connection *c, int code) {
    int at = code + CODES_BELOW;
    errors[at >= 0 && at < CODES ? at : CODES - 1]++;
    if (c->kind == TAIL) { fprintf(stderr, "error %d; ", code); errno = 0; fail("a tail met it"); }
}

static void count_payload(int64_t payload, int64_t now) {
    if (begin_ns && now >= begin_ns && (!end_ns || now < end_ns)) { bytes += payload; requests++; }
}

static int counts(int64_t due) {
    return begin_ns && due >= begin_ns && due < begin_ns + measure_ns;
}

static void answered(struct connection *c, const char *body, int64_t now) {
    int64_t expected = c->kind == PRODUCE ? c->done % c->count : 0;
    if (read_32(body) != (int32_t)expected) { errno = 0; fail("an answer to another request"); }
    int code = read_16(body + c->error_at);
    int64_t number = c->done++;
    if (c->kind != PRODUCE && !code) code = read_16(body + 9); /* of the whole answer */
    if (code) { count_error(c, code); return; }
    if (c->kind == PRODUCE) {
        count_payload(c->payload, now);
        if (interval_ns && counts(due_ns(c, number))) keep(&acknowledged, now - due_ns(c, number));
        return;
    }
    int64_t come = read_varint(body + c->records_at) - 1;
    int64_t batches = come / c->batch_bytes;
    if (c->kind == FETCH) {
        if (batches <= 0) { errno = 0; fail("a fetch brought no whole batch"); }
        if (come != c->payload) other_sizes++;
        c->next_offset += batches * c->records;
        if (c->next_offset >= c->end) c->next_offset = c->first;
        count_payload(batches * c->batch_bytes, now);
        return;
    }
    for (int64_t i = 0; i < batches; i++, c->seen++)
        if (counts(due_ns(c->producer, c->seen)))
            keep(&delivered, now - due_ns(c->producer, c->seen));
    c->next_offset = c->seen * c->records;
}

/* Prevents a wakeup for every part of a large response. */
static void wake_at(struct connection *c, int size) {
#ifdef TLS
    size = 1; /* a record may be complete within fewer bytes */
#endif
    if (c->low == size) return;
    if (setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof size)) fail("SO_RCVLOWAT");
    c->low = size;
}

/* Returns 0 when there is nothing more to read now. */
static int receive(struct connection *c) {
    if (c->skip) {
        ssize_t gone = receive_bytes(c, scratch, c->skip < DISCARD ? c->skip : DISCARD, 1);
        if (gone < 0 && errno == EAGAIN) return 0;
        if (gone <= 0) fail("a broker hung up");
        c->skip -= gone;
        wake_at(c, c->skip > PIECE ? PIECE : c->skip > 0 ? c->skip : 1);
        return 1;
    }
    int64_t room = (c->kind == PRODUCE ? BUFFER : HEAD) - c->have;
    ssize_t come = receive_bytes(c, c->buffer + c->have, room, 0);
    if (come < 0 && errno == EAGAIN) return 0;
    if (come <= 0) fail("a broker hung up");
    c->have += come;
    int64_t at = 0, now = now_ns();
    while (c->have - at >= 4) {
        int64_t whole = 4 + (int64_t)read_32(c->buffer + at), left = c->have - at;
        if (left < whole && left < HEAD) break;
        answered(c, c->buffer + at + 4, now);
        c->skip = whole > left ? whole - left : 0;
        at += whole < left ? whole : left;
    }
    memmove(c->buffer, c->buffer + at, c->have - at);
    c->have -= at;
    if (c->skip) wake_at(c, c->skip > PIECE ? PIECE : c->skip);
#ifdef TLS
    return 1; /* until the library has nothing more: the socket does not tell of its buffer */
#else
    return come == room;
#endif
}

static void serve(struct connection *c, uint32_t events) {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) while (receive(c));
    if (c->kind == PRODUCE) produce(c); else fetch(c);
}

/* --- the run --------------------------------------------------------------------------------- */

/* Send what was due before `until_ns`; returns when the next one is. */
static int64_t send_due(int64_t until_ns, int64_t next) {
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections[i];
        if (c->kind != PRODUCE) continue;
        int64_t due = c->due;
        while (due_ns(c, c->due) < until_ns) c->due++;
        if (c->due != due) produce(c);
        if (due_ns(c, c->due) < next) next = due_ns(c, c->due);
    }
    return next;
}

static void turn(int64_t until_ns) {
    struct epoll_event events[64];
    int64_t now = now_ns();
    if (interval_ns && is_sending) {
        until_ns = send_due(now + 1, until_ns);
        now = now_ns();
    }
    int64_t wait = until_ns > now ? until_ns - now : 0;
    struct timespec timeout = { wait / 1000000000, wait % 1000000000 };
    int count = epoll_pwait2(poll_fd, events, 64, &timeout, NULL);
    if (count < 0 && errno != EINTR) fail("epoll");
    for (int i = 0; i < count; i++) serve(events[i].data.ptr, events[i].events);
}

static int is_idle(void) {
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections[i];
        if (c->kind == PRODUCE && c->done * c->size < c->out) return 0;
        if (c->kind == FETCH && (c->done < c->asked || c->skip)) return 0;
        if (c->kind == TAIL && c->seen < c->producer->done) return 0;
    }
    return 1;
}

static void open_connection(struct connection *c) {
    int one = 1;
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port_of(c)),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to)) fail("connecting");
    if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) fail("TCP_NODELAY");
    begin_tls(c);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK)) fail("O_NONBLOCK");
    struct epoll_event event = { EPOLLIN, { .ptr = c } };
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll");
    if (c->kind == PRODUCE) return;
    if (c->size > FRAME_MAX) { errno = 0; fail("a fetch request is too large"); }
    memcpy(c->frame, frames + c->at, c->size);
}

static void run(double *broker_cpu, double *own_cpu, double *machine_cpu) {
    for (int i = 0; i < connection_count; i++) open_connection(connections[i]);
    origin_ns = now_ns();
    for (int i = 0; i < connection_count; i++) serve(connections[i], 0);
    int64_t until = origin_ns + warm_ns;
    begin_ns = origin_ns; /* so that the cap counts; reset below */
    while (now_ns() < until && (!cap_bytes || bytes < cap_bytes / 8)) turn(until);
    double brokers = cpu_of_all(), own = cpu_of_self(), machine = cpu_of_machine();
    bytes = requests = other_sizes = acknowledged.count = delivered.count = 0;
    memset(errors, 0, sizeof errors);
    begin_ns = now_ns();
    until = begin_ns + measure_ns;
    while (now_ns() < until && (!cap_bytes || bytes < cap_bytes)) turn(until);
    end_ns = now_ns();
    *broker_cpu = cpu_of_all() - brokers;
    *own_cpu = cpu_of_self() - own;
    *machine_cpu = cpu_of_machine() - machine;
    /* Requests that were due before the end count, with their wait, even if the generator stalled. */
    if (interval_ns && end_ns >= until) send_due(until, until);
    is_sending = 0;
    until = end_ns + drain_ns;
    while (now_ns() < until && !is_idle()) turn(now_ns() + 10000000);
}

/* --- input and output ------------------------------------------------------------------------ */

static struct connection *add(enum kind kind) {
    struct connection *c = calloc(1, sizeof *c);
    if (!c || connection_count == CONNECTIONS_MAX) fail("too many connections");
    c->kind = kind;
    c->window = 1;
    return connections[connection_count++] = c;
}

static void open_frames(const char *path) {
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    frames_fd = memfd_create("frames", MFD_CLOEXEC);
    if (file < 0 || frames_fd < 0 || fstat(file, &about)) fail(path);
    for (off_t at = 0; at < about.st_size;)
        if (sendfile(frames_fd, file, &at, about.st_size - at) <= 0) fail(path);
    close(file);
    frames = mmap(NULL, about.st_size, PROT_READ, MAP_SHARED, frames_fd, 0);
    if (frames == MAP_FAILED) fail(path);
}

static void read_plan(void) {
    char line[4096], path[4096];
    int pid, producer;
    while (fgets(line, sizeof line, stdin)) {
        struct connection *c;
        if (sscanf(line, "frames %4095s", path) == 1) open_frames(path);
        else if (sscanf(line, "pid %d", &pid) == 1 && pid_count < PIDS_MAX) pids[pid_count++] = pid;
        else if (sscanf(line, "start %ld", &interval_ns) == 1) continue;
        else if (!strncmp(line, "phases ", 7)) {
            if (sscanf(line + 7, "%ld %ld %ld %ld", &warm_ns, &measure_ns, &drain_ns,
                       &cap_bytes) != 4) fail(line);
        } else if (!strncmp(line, "produce ", 8)) {
            c = add(PRODUCE);
            c->number = producer_count++;
            if (sscanf(line + 8, "%d %ld %ld %ld %ld %ld %ld", &c->port, &c->at, &c->size, &c->count,
                       &c->payload, &c->window, &c->error_at) != 7) fail(line);
        } else if (!strncmp(line, "fetch ", 6)) {
            c = add(FETCH);
            if (sscanf(line + 6, "%d %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", &c->port, &c->at,
                       &c->size, &c->error_at, &c->records_at, &c->offset_at, &c->records,
                       &c->batch_bytes, &c->payload, &c->first, &c->end) != 11) fail(line);
            c->next_offset = c->first;
        } else if (!strncmp(line, "tail ", 5)) {
            c = add(TAIL);
            if (sscanf(line + 5, "%d %ld %ld %ld %ld %ld %ld %ld %d", &c->port, &c->at, &c->size,
                       &c->error_at, &c->records_at, &c->offset_at, &c->records, &c->batch_bytes,
                       &producer) != 9 || producer >= connection_count) fail(line);
            c->producer = connections[producer];
#ifdef TLS
        } else if (!strncmp(line, "tls ", 4)) {
            if (tls_count == PIDS_MAX) { errno = 0; fail(line); }
            if (sscanf(line + 4, "%d %d", plain_ports + tls_count, tls_ports + tls_count) != 2) fail(line);
            tls_count++;
#endif
        } else { errno = 0; fail(line); }
    }
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_samples(const char *name, struct samples *samples) {
    static const double shares[] = { 0.5, 0.9, 0.99, 0.999, 1 };
    static const char *names[] = { "p50", "p90", "p99", "p999", "max" };
    qsort(samples->us, samples->count, sizeof *samples->us, by_size);
    printf(", \"%s_us\": {\"count\": %ld", name, samples->count);
    for (int i = 0; i < 5 && samples->count; i++) {
        int64_t rank = (int64_t)(shares[i] * samples->count + 0.999999) - 1;
        printf(", \"%s\": %u", names[i], samples->us[rank < 0 ? 0 : rank]);
    }
    printf("}");
}

static int64_t unanswered(void) {
    int64_t count = 0;
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections[i];
        if (c->kind == PRODUCE) count += (interval_ns ? c->due : c->out / c->size) - c->done;
    }
    return count;
}

int main(void) {
    double broker_cpu, own_cpu, machine_cpu;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    read_plan();
    if (frames_fd < 0 || poll_fd < 0 || !connection_count) { errno = 0; fail("an empty plan"); }
    run(&broker_cpu, &own_cpu, &machine_cpu);
    printf("{\"seconds\": %.6f, \"bytes\": %ld, \"requests\": %ld, \"broker_cpu_s\": %.2f, "
           "\"client_cpu_s\": %.3f, \"machine_cpu_s\": %.2f, \"other_sizes\": %ld, \"unanswered\": %ld",
           (end_ns - begin_ns) / 1e9, bytes, requests, broker_cpu, own_cpu, machine_cpu,
           other_sizes, unanswered());
    printf(", \"errors\": {");
    for (int i = 0, some = 0; i < CODES; i++)
        if (errors[i]) printf("%s\"%d\": %ld", some++ ? ", " : "", i - CODES_BELOW, errors[i]);
    printf("}");
    print_samples("acknowledged", &acknowledged);
    print_samples("delivered", &delivered);
    printf("}\n");
    return 0;
}
