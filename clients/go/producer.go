// Carillon · producer.go
// SPDX-License-Identifier: Apache-2.0

package carillon

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
)

// Appender appends an entry to a stream of Redis, by XADD with the entry id *. The fields are names
// and values by turns.
type Appender interface {
	Append(ctx context.Context, stream string, fields []string) error
}

// AppenderFunc is a function that is an Appender, such as a call of your Redis client.
type AppenderFunc func(ctx context.Context, stream string, fields []string) error

// Append calls the function.
func (function AppenderFunc) Append(ctx context.Context, stream string, fields []string) error {
	return function(ctx, stream, fields)
}

// Producer appends jobs to Redis.
//
// A job goes to the stream of its Lane, or without one to carillon:jobs. Its type's lane counts
// only if it is more urgent, so set LaneBulk for jobs that can wait.
type Producer struct {
	Appender Appender
	// Parts is what the key carillon:parts of a Redis Cluster holds. Jobs then go to their user's
	// part, so that all masters share the load. 0 is for one Redis, and for the plain streams.
	Parts int
}

// Send appends jobs, one after the other; none if one of them is invalid (*InvalidJobError).
//
// After another error, send the same jobs again: their ids prevent duplicates, except of ephemeral
// events.
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
		return Part(user, producer.Parts) + ":jobs"
	}
	return Part(user, producer.Parts) + ":jobs:" + string(job.Lane)
}

// Part returns the start of the names of a user's streams, such as "carillon:{agbr}".
func Part(user string, parts int) string {
	if parts <= 1 {
		return "carillon"
	}
	tags, isKnown := knownTags.Load(parts)
	if !isKnown {
		tags, _ = knownTags.LoadOrStore(parts, partTags(parts))
	}
	hash := fnv.New32a()
	hash.Write([]byte(user))
	return "carillon:{" + tags.([]string)[hash.Sum32()%uint32(parts)] + "}"
}

var knownTags sync.Map // The tags by the number of parts.

// partTags returns the first words, by length and then by the alphabet, in the slots in the middle
// of each part (docs/scaling.md).
func partTags(parts int) []string {
	const slots = 16_384
	tags := make([]string, parts)
	missing := map[uint16]int{}
	for part := range tags {
		missing[uint16((2*part+1)*slots/(2*parts))] = part
	}
	for number := 1; len(missing) > 0; number++ {
		var word []byte
		for rest := number; rest > 0; rest = (rest - 1) / 26 {
			word = append([]byte{byte('a' + (rest-1)%26)}, word...)
		}
		if part, isMissing := missing[crc16(word)%slots]; isMissing {
			tags[part] = string(word)
			delete(missing, crc16(word)%slots)
		}
	}
	return tags
}

// crc16 returns the CRC-16/XMODEM by which Redis hashes keys.
func crc16(text []byte) (code uint16) {
	for _, char := range text {
		code ^= uint16(char) << 8
		for bit := 0; bit < 8; bit++ {
			code = code<<1 ^ code>>15*0x1021
		}
	}
	return code
}
