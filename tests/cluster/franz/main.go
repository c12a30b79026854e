// The read-process-write program of transaction_program.py with franz-go, in transactions of the
// older version, as a member of a group: franz BOOTSTRAP NAME PARTITIONS
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	abortEach = 10
	batch     = 100
	fatal     = 3 // exit code
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, os.Args[2]+":", err)
		if ctx.Err() == nil {
			os.Exit(fatal)
		}
	}
}

func run(ctx context.Context, bootstrap string, name string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(10*time.Second),
		kgo.DefaultProduceTopic("result-"+name),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics("source"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for transactions := 1; ctx.Err() == nil; {
		fetches := session.PollRecords(ctx, batch)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetches.EachRecord(func(record *kgo.Record) {
			key := fmt.Sprintf("%d/%d", record.Partition, record.Offset)
			output := &kgo.Record{Key: []byte(key), Value: record.Value}
			session.Produce(context.Background(), output, promise.Promise())
		})
		isSent := promise.Err() == nil
		commit := kgo.TransactionEndTry(isSent && transactions%abortEach != 0)
		if _, err := session.End(context.Background(), commit); err != nil {
			return err
		}
		transactions++
	}
	return nil
}
