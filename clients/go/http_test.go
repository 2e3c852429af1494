// Carillon · http_test.go
// SPDX-License-Identifier: Apache-2.0

package carillon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"carillon"
)

// gateway gives its answers in order and repeats the last; nil resets the connection.
type gateway struct {
	answers  []http.HandlerFunc
	requests [][]map[string]any
	tokens   []string
}

func (stub *gateway) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	var jobs []map[string]any
	if err := json.NewDecoder(request.Body).Decode(&jobs); err != nil {
		panic(err)
	}
	answer := stub.answers[len(stub.answers)-1]
	if index := len(stub.requests); index < len(stub.answers) {
		answer = stub.answers[index]
	}
	stub.requests = append(stub.requests, jobs)
	stub.tokens = append(stub.tokens, request.Header.Get("Authorization"))
	if answer != nil {
		answer(writer, request)
	} else if connection, _, err := writer.(http.Hijacker).Hijack(); err == nil {
		_ = connection.(*net.TCPConn).SetLinger(0)
		_ = connection.Close()
	}
}

func answer(status int, body string, head ...string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		for index := 0; index < len(head); index += 2 {
			writer.Header().Set(head[index], head[index+1])
		}
		writer.WriteHeader(status)
		_, _ = writer.Write([]byte(body))
	}
}

func accept(count int) http.HandlerFunc {
	jobs := make([]string, count)
	for index := range jobs {
		jobs[index] = fmt.Sprintf(`{"id":"%d","lane":"critical","entry":"1-%d"}`, index, index)
	}
	return answer(202, `{"jobs":[`+strings.Join(jobs, ",")+`]}`)
}

func start(t *testing.T, answers ...http.HandlerFunc) (*gateway, *carillon.HTTPProducer) {
	t.Helper()
	stub := &gateway{answers: answers}
	server := httptest.NewServer(stub)
	t.Cleanup(server.Close)
	producer := carillon.NewHTTPProducer(server.URL+"/", "secret\n")
	producer.LongestWait = 2 * time.Second
	return stub, producer
}

func TestHTTPProducerReturnsWhatTheGatewayAccepted(t *testing.T) {
	stub, producer := start(t, accept(1))
	accepted, err := producer.Send(context.Background(), payment("payment:1"))
	if err != nil || len(accepted) != 1 || accepted[0] != (carillon.Accepted{ID: "0", Lane: "critical", Entry: "1-0"}) {
		t.Fatalf("got %v, %v", accepted, err)
	}
	if stub.tokens[0] != "Bearer secret" || stub.requests[0][0]["title"] != "Payment received" {
		t.Errorf("sent %v with %s", stub.requests, stub.tokens)
	}
}

func TestHTTPProducerSendsAJobOnceMoreUntilItIsAccepted(t *testing.T) {
	busy := answer(503, `{"detail":"Redis is out of reach"}`, "Retry-After", "1")
	stub, producer := start(t, busy, nil, answer(429, "{}"), answer(502, "<html>"), accept(1))
	began := time.Now()
	accepted, err := producer.Send(context.Background(), payment("payment:1"))
	if err != nil || len(accepted) != 1 || len(stub.requests) != 5 {
		t.Fatalf("got %v, %v after %d tries", accepted, err, len(stub.requests))
	}
	if waited := time.Since(began); waited < time.Second {
		t.Errorf("waited %s, less than Retry-After", waited)
	}
	for _, jobs := range stub.requests {
		if jobs[0]["id"] != "payment:1" {
			t.Errorf("sent %v", jobs)
		}
	}
}

func TestHTTPProducerGivesUpAfterTheLastTry(t *testing.T) {
	stub, producer := start(t, answer(503, `{"detail":"Redis is out of reach"}`))
	producer.Tries = 2
	_, err := producer.Send(context.Background(), payment("payment:1"))
	var unavailable *carillon.UnavailableError
	if !errors.As(err, &unavailable) || !strings.HasSuffix(err.Error(), "503: Redis is out of reach") {
		t.Errorf("got %v", err)
	}
	var refused *carillon.RefusedError
	if errors.As(err, &refused) || len(stub.requests) != 2 {
		t.Errorf("%d tries, refused: %v", len(stub.requests), refused)
	}
}

func TestHTTPProducerDoesNotWaitLongerThanAllowed(t *testing.T) {
	stub, producer := start(t, answer(503, "{}", "Retry-After", "3600"))
	_, err := producer.Send(context.Background(), payment("payment:1"))
	var unavailable *carillon.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.RetryAfter != time.Hour || len(stub.requests) != 1 {
		t.Errorf("got %v after %d tries", err, len(stub.requests))
	}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	_, producer = start(t, answer(503, "{}", "Retry-After", date))
	_, err = producer.Send(context.Background(), payment("payment:1"))
	if !errors.As(err, &unavailable) || unavailable.RetryAfter < 50*time.Minute {
		t.Errorf("got %v", err)
	}
}

func TestHTTPProducerTriesAgainIfThereIsNoAnswerInTime(t *testing.T) {
	stuck := func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() }
	_, producer := start(t, stuck, accept(1))
	producer.Timeout = 300 * time.Millisecond
	if _, err := producer.Send(context.Background(), payment("payment:1")); err != nil {
		t.Error(err)
	}
}

func TestHTTPProducerStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, producer := start(t, func(_ http.ResponseWriter, request *http.Request) {
		cancel()
		<-request.Context().Done()
	})
	if _, err := producer.Send(ctx, payment("payment:1")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestHTTPProducerNamesTheFaultsThatTheGatewayFinds(t *testing.T) {
	_, producer := start(t, answer(422, `{"errors":[{"field":"[0].type","reason":"is not in the catalog"}]}`))
	_, err := producer.Send(context.Background(), payment("payment:1"))
	var invalid *carillon.InvalidJobError
	if !errors.As(err, &invalid) || err.Error() != "type: is not in the catalog" {
		t.Errorf("got %v", err)
	}
}

func TestHTTPProducerSendsBatchesOfAThousand(t *testing.T) {
	fault := answer(422, `{"errors":[{"field":"[17].title","reason":"is longer than 255 characters"}]}`)
	stub, producer := start(t, accept(1_000), fault)
	jobs := make([]carillon.Job, 1_200)
	for index := range jobs {
		jobs[index] = payment(fmt.Sprint(index))
	}
	accepted, err := producer.Send(context.Background(), jobs...)
	if err == nil || err.Error() != "[1017].title: is longer than 255 characters" {
		t.Errorf("got %v", err)
	}
	if len(accepted) != 1_000 || len(stub.requests[1]) != 200 || stub.requests[1][0]["id"] != "1000" {
		t.Errorf("%d accepted, then sent %v", len(accepted), stub.requests[1])
	}
}

func TestHTTPProducerNamesTheJobOfALaterBatchThatTheTokenDoesNotAllow(t *testing.T) {
	_, producer := start(t, accept(1_000), answer(403, `{"errors":[{"field":"[17].type","reason":"is not allowed"}]}`))
	jobs := make([]carillon.Job, 1_200)
	for index := range jobs {
		jobs[index] = payment(fmt.Sprint(index))
	}
	_, err := producer.Send(context.Background(), jobs...)
	var refused *carillon.RefusedError
	if !errors.As(err, &refused) || !strings.HasSuffix(err.Error(), "; [1017].type: is not allowed") {
		t.Errorf("got %v", err)
	}
}

func TestHTTPProducerDoesNotUseHTTP2(t *testing.T) {
	var version int
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		version = request.ProtoMajor
		accept(1)(writer, request)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	producer := carillon.NewHTTPProducer(server.URL, "secret")
	producer.Tries = 1
	transport, isPlain := producer.Client.Transport.(*http.Transport)
	if !isPlain {
		t.Fatalf("the transport is %v", producer.Client.Transport)
	}
	transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	if _, err := producer.Send(context.Background(), payment("payment:1")); err != nil || version != 1 {
		t.Errorf("HTTP/%d, %v", version, err)
	}
}

func TestHTTPProducerSendsLargeJobsInBatchesThatTheGatewayTakes(t *testing.T) {
	stub, producer := start(t, accept(2), accept(1))
	jobs := []carillon.Job{payment("1"), payment("2"), payment("3")}
	for index := range jobs {
		jobs[index].Body = strings.Repeat("x", 3<<20)
	}
	if accepted, err := producer.Send(context.Background(), jobs...); err != nil || len(accepted) != 3 {
		t.Errorf("got %v, %v", accepted, err)
	}
	if len(stub.requests) != 2 {
		t.Errorf("sent %d batches", len(stub.requests))
	}
}

func TestHTTPProducerSendsJobsWithManyUsersInBatchesThatTheGatewayTakes(t *testing.T) {
	stub, producer := start(t, accept(398), accept(202))
	users := make([]string, 1_000)
	for index := range users {
		users[index] = fmt.Sprint(1_000_000 + index)
	}
	jobs := make([]carillon.Job, 600)
	for index := range jobs {
		jobs[index] = carillon.Job{ID: fmt.Sprint(index), Users: users, Type: "payment_received"}
	}
	if accepted, err := producer.Send(context.Background(), jobs...); err != nil || len(accepted) != 600 {
		t.Errorf("%d accepted, %v", len(accepted), err)
	}
	if len(stub.requests) != 2 || len(stub.requests[0]) != 398 {
		t.Errorf("sent %d batches", len(stub.requests))
	}
}

func TestHTTPProducerSendsNothingIfOneJobIsInvalid(t *testing.T) {
	stub, producer := start(t, accept(2))
	_, err := producer.Send(context.Background(), payment("1"), carillon.Job{})
	var invalid *carillon.InvalidJobError
	if !errors.As(err, &invalid) || len(invalid.Faults) != 3 || len(stub.requests) > 0 {
		t.Errorf("got %v after %d requests", err, len(stub.requests))
	}
	if accepted, err := producer.Send(context.Background()); err != nil || len(accepted)+len(stub.requests) > 0 {
		t.Errorf("got %v, %v", accepted, err)
	}
}

func TestHTTPProducerDoesNotRepeatWhatTheGatewayRefuses(t *testing.T) {
	for status, body := range map[int]string{
		301: "<html>", 200: `{"ok":true}`, 202: "{}", 401: `{"detail":"no"}`, 500: "{}",
		403: `{"detail":"no","errors":[{"field":"[0].type","reason":"is not allowed"}]}`,
	} {
		stub, producer := start(t, answer(status, body, "Location", "/elsewhere"))
		_, err := producer.Send(context.Background(), payment("payment:1"))
		var refused *carillon.RefusedError
		if !errors.As(err, &refused) || refused.Status != status || len(stub.requests) != 1 {
			t.Errorf("%d: got %v after %d tries", status, err, len(stub.requests))
		}
		if status == 403 && !strings.HasSuffix(err.Error(), "403: no; type: is not allowed") {
			t.Errorf("got %v", err)
		}
	}
}

func TestHTTPProducerNamesABadAddressAtOnce(t *testing.T) {
	for _, url := range []string{"", "localhost:8080", "/v1"} {
		_, err := carillon.NewHTTPProducer(url, "secret").Send(context.Background(), payment("payment:1"))
		var unavailable *carillon.UnavailableError
		if err == nil || errors.As(err, &unavailable) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v", url, err)
		}
	}
}
