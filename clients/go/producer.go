// Carillon · producer.go
// SPDX-License-Identifier: Apache-2.0

package carillon

import (
	"context"
	"fmt"
	"hash/fnv"
)

// Appender appends an entry to a Redis stream: XADD with the entry id *. The fields are alternating
// names and values.
type Appender interface {
	Append(ctx context.Context, stream string, fields []string) error
}

// AppenderFunc makes a function an Appender, such as one that calls your Redis client.
type AppenderFunc func(ctx context.Context, stream string, fields []string) error

// Append calls the function.
func (function AppenderFunc) Append(ctx context.Context, stream string, fields []string) error {
	return function(ctx, stream, fields)
}

// Producer appends jobs to Redis.
//
// A job goes to the stream of its Lane; without one, to carillon:jobs. The lane of its type applies
// only if it is more urgent, so set LaneBulk for jobs that can wait.
type Producer struct {
	Appender Appender
	// Tags are the words in the key carillon:tags of a Redis Cluster, in their order. With them, a
	// job goes to its user's part, which spreads the load over all masters. nil is for one Redis, or
	// for the plain streams.
	Tags []string
}

// Send appends jobs one by one. If any is invalid, it appends none (*InvalidJobError).
//
// After any other error, send the same jobs again: their ids prevent duplicates, except of
// ephemeral events.
func (producer Producer) Send(ctx context.Context, jobs ...Job) error {
	_, entries, err := prepare(jobs)
	if err != nil {
		return err
	}
	for index, job := range jobs {
		if err := producer.Appender.Append(ctx, producer.Stream(job), entries[index]); err != nil {
			return fmt.Errorf("job %s: %w", job.ID, err)
		}
	}
	return nil
}

// Stream returns the name of the stream that takes a job.
func (producer Producer) Stream(job Job) string {
	user := job.User
	if user == "" {
		user = job.ID // A job for several users may go to any part.
	}
	if job.Lane == "" || job.Lane == LaneNormal {
		return Part(user, producer.Tags) + ":jobs"
	}
	return Part(user, producer.Tags) + ":jobs:" + string(job.Lane)
}

// Part returns the prefix of a user's streams, such as "carillon:{agbr}". The tags are the words in
// the key carillon:tags, in their order; none for one Redis.
func Part(user string, tags []string) string {
	if len(tags) == 0 {
		return "carillon"
	}
	hash := fnv.New32a()
	hash.Write([]byte(user))
	return "carillon:{" + tags[hash.Sum32()%uint32(len(tags))] + "}"
}
