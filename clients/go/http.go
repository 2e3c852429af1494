// Carillon · http.go
// SPDX-License-Identifier: Apache-2.0

package carillon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The limits of a request. The gateway takes 1,000 jobs, 16 MB and 500,000 JSON values.
const mostJobs, mostBytes, mostValues = 1_000, 8 << 20, 400_000

// HTTPProducer posts jobs to the gateway. Make it with NewHTTPProducer; goroutines may share it.
//
// It retries 429, 503, a proxy's 502 and 504, and requests without an answer, with exponential
// backoff and full jitter. The jobs' ids prevent duplicates. An ephemeral event is not stored, so a
// retry may deliver it twice.
type HTTPProducer struct {
	// URL is the gateway's address, such as "https://notify.example.com".
	URL string
	// Token returns a token with the scope service. The producer calls it before each try.
	Token  func(context.Context) (string, error)
	Client *http.Client
	// Timeout limits each try. Tries limits the tries of a request, the first included.
	Timeout time.Duration
	Tries   int
	// LongestWait limits the backoff and the Retry-After that the producer obeys. If the gateway
	// asks for a longer wait, the call fails.
	LongestWait time.Duration
}

// NewHTTPProducer returns a producer with 5 tries of 10 s each and a LongestWait of 30 s.
func NewHTTPProducer(url, token string) *HTTPProducer {
	getToken := func(context.Context) (string, error) { return token, nil }
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if shared, isPlain := http.DefaultTransport.(*http.Transport); isPlain {
		client.Transport = withoutHTTP2(shared)
	}
	return &HTTPProducer{url, getToken, client, 10 * time.Second, 5, 30 * time.Second}
}

// withoutHTTP2 returns a copy of a transport that uses HTTP/1.1 only. Over HTTP/2, every try may
// use the same dead connection (golang/go#36026).
func withoutHTTP2(shared *http.Transport) *http.Transport {
	transport := shared.Clone()
	transport.ForceAttemptHTTP2 = false
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	// Otherwise the copy still offers h2.
	if transport.TLSClientConfig != nil {
		transport.TLSClientConfig.NextProtos = nil
	}
	return transport
}

// Accepted is a job that Redis has stored. Entry is the id of its stream entry.
type Accepted struct {
	ID    string `json:"id"`
	Lane  Lane   `json:"lane"`
	Entry string `json:"entry"`
}

// RefusedError is an answer that a retry does not change, such as 401 or 403.
type RefusedError struct {
	Status int
	Detail string
}

func (err *RefusedError) Error() string {
	return fmt.Sprintf("the gateway answered %d: %s", err.Status, err.Detail)
}

// UnavailableError reports that the gateway has not confirmed the jobs. Send them again later.
type UnavailableError struct {
	Err        error         // The error of the last try.
	RetryAfter time.Duration // The wait that the gateway asked for, or 0.
}

func (err *UnavailableError) Error() string { return "the gateway is unavailable: " + err.Err.Error() }
func (err *UnavailableError) Unwrap() error { return err.Err }

// Send posts jobs in batches of up to 1,000, and returns once Redis has them all.
//
// If a job is invalid, the gateway accepts none of its batch. On an error, Send also returns the
// jobs of the batches that were accepted before. After an *InvalidJobError or a *RefusedError, fix
// the cause. After an *UnavailableError, the gateway may have accepted some of the batch: send all
// jobs again later. Their ids prevent duplicates.
func (producer *HTTPProducer) Send(ctx context.Context, jobs ...Job) ([]Accepted, error) {
	texts, _, err := prepare(jobs)
	accepted := make([]Accepted, 0, len(texts))
	for err == nil && len(accepted) < len(texts) {
		rest, count, size, values := texts[len(accepted):], 0, 0, 0
		for count < len(rest) && count < mostJobs {
			size += len(rest[count]) + 1
			values += countValues(rest[count])
			if count > 0 && (size > mostBytes || values > mostValues) {
				break
			}
			count++
		}
		body := append(append([]byte("["), bytes.Join(rest[:count], []byte(","))...), ']')
		var batch []Accepted
		batch, err = producer.post(ctx, body, len(accepted), len(jobs))
		if err == nil && len(batch) != count {
			err = &RefusedError{202, "the answer does not list every job"}
		}
		accepted = append(accepted, batch...)
	}
	return accepted, err
}

// countValues returns an upper bound of the values in a JSON text: each but the first follows a
// comma or an opening bracket.
func countValues(text []byte) int {
	count := 1
	for _, sign := range []string{",", "[", "{"} {
		count += bytes.Count(text, []byte(sign))
	}
	return count
}

// post sends a batch until the gateway accepts it or no tries are left. first is the index of its
// first job in the call.
func (producer *HTTPProducer) post(ctx context.Context, body []byte, first, jobs int) ([]Accepted, error) {
	for try, backoff := 1, 200*time.Millisecond; ; try, backoff = try+1, 2*backoff {
		accepted, err := producer.try(ctx, body, first, jobs)
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) {
			return accepted, err
		}
		if backoff > producer.LongestWait {
			backoff = producer.LongestWait
		}
		// Go before 1.20 does not seed the shared source.
		jitter := rand.New(rand.NewSource(time.Now().UnixNano())).Int63n(int64(backoff) + 1)
		wait := unavailable.RetryAfter + time.Duration(jitter)
		deadline, hasDeadline := ctx.Deadline()
		isLate := unavailable.RetryAfter > producer.LongestWait || hasDeadline && time.Until(deadline) < wait
		if try >= producer.Tries || isLate && ctx.Err() == nil {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try sends a batch once. It returns an *UnavailableError if a retry may help.
func (producer *HTTPProducer) try(ctx context.Context, body []byte, first, jobs int) ([]Accepted, error) {
	ctx, cancel := context.WithTimeout(ctx, producer.Timeout)
	defer cancel()
	place := strings.TrimRight(producer.URL, "/") + "/v1/jobs"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, place, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if request.URL.Host == "" {
		return nil, fmt.Errorf("URL: must be the http or https address of a gateway, not %q", producer.URL)
	}
	token, err := producer.Token(ctx)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "carillon-go/"+Version)
	response, err := producer.Client.Do(request)
	if err != nil {
		return nil, &UnavailableError{Err: err}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, mostBytes))
	if err != nil {
		return nil, &UnavailableError{Err: err}
	}
	var answer struct {
		Jobs   []Accepted
		Detail string
		Errors []Fault
	}
	if json.Unmarshal(content, &answer) != nil || answer.Detail == "" {
		answer.Detail = http.StatusText(response.StatusCode)
	}
	for index := range answer.Errors {
		answer.Errors[index].Field = moved(answer.Errors[index].Field, first, jobs)
	}
	invalid, refused := &InvalidJobError{answer.Errors}, &RefusedError{response.StatusCode, answer.Detail}
	switch response.StatusCode {
	case 202:
		if len(answer.Jobs) > 0 {
			return answer.Jobs, nil
		}
	case 422:
		if len(answer.Errors) > 0 {
			return nil, invalid
		}
	case 429, 502, 503, 504:
		wait := retryAfter(response.Header.Get("Retry-After"))
		return nil, &UnavailableError{errors.New(refused.Error()), wait}
	}
	if len(answer.Errors) > 0 {
		refused.Detail += "; " + invalid.Error()
	}
	return nil, refused
}

// moved rewrites the field of a fault: the job's index in the batch becomes its index in the call.
func moved(field string, first, jobs int) string {
	place, name, _ := strings.Cut(strings.TrimPrefix(field, "["), "].")
	if number, err := strconv.Atoi(place); err == nil {
		return placed(name, first+number, jobs)
	}
	return field
}

// retryAfter parses seconds or an HTTP date (RFC 9110, section 10.2.3); 0 for anything else.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(header); err == nil && time.Until(date) > 0 {
		return time.Until(date)
	}
	return 0
}
