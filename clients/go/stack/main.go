// Carillon · main.go
// SPDX-License-Identifier: Apache-2.0

// Program stack tests the package against a running Carillon and prints a line for each step.
//
// It reads GATEWAY_URL, SERVICE_TOKEN and REDIS_URL, which `deploy/up` writes to .local/env.
// The gateway needs WEBHOOKS_PRIVATE=on for the last step; without it the program skips the step.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"

	"carillon"
)

var (
	ctx      = context.Background()
	run      = fmt.Sprintf("go-%d", time.Now().UnixNano())
	gateway  = os.Getenv("GATEWAY_URL")
	token    = os.Getenv("SERVICE_TOKEN")
	producer = carillon.NewHTTPProducer(gateway, token)
)

func main() {
	step("a job over HTTP is stored once, however often it is sent", func() error {
		for repeat := 0; repeat < 2; repeat++ {
			if _, err := producer.Send(ctx, job("http")); err != nil {
				return err
			}
		}
		return stored("http", 1)
	})
	step("1,200 jobs go in two batches", func() error {
		jobs := make([]carillon.Job, 1_200)
		for index := range jobs {
			jobs[index] = job(fmt.Sprintf("many:%d", index))
		}
		accepted, err := producer.Send(ctx, jobs...)
		if err == nil && (len(accepted) != 1_200 || accepted[1_199].ID != jobs[1_199].ID) {
			err = fmt.Errorf("accepted %d jobs", len(accepted))
		}
		return also(err, func() error { return stored("many:1199", 1) })
	})
	step("a job with almost every field is accepted", func() error {
		full := job("full")
		full.User, full.Users, full.Except = "", []string{full.User, "ben"}, []string{"ben"}
		full.Org, full.TraceParent = "acme", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		full.Title, full.Vars = "", map[string]any{"name": "Ben & <Co>", "amount": "€ 40", "invoice": 9}
		full.Data = map[string]any{"lines": "a\r\nb", "list": []int{1}}
		full.EntityType, full.EntityID, full.Category, full.Sound, full.State = "invoice", "9", "payments", "bell", "paid"
		full.URL, full.Image, full.Badge = "/invoices/9", "https://example.com/a.png", carillon.Ptr(0)
		full.Platform = map[string]any{"fcm": map[string]any{}}
		full.Severity, full.Delivery, full.Lane = carillon.SeverityInfo, carillon.DeliveryInApp, carillon.LaneNormal
		full.PushPriority, full.Channels = carillon.PriorityHigh, []carillon.Channel{carillon.ChannelInApp}
		full.CollapseKey = "invoice:9"
		full.DeliverAt = carillon.Ptr(time.Now())
		full.ExpiresAt, full.KeepUntil = carillon.Ptr(time.Now().Add(time.Hour)), carillon.Ptr(time.Now().Add(2*time.Hour))
		if _, err := producer.Send(ctx, full); err != nil {
			return err
		}
		return stored("full", 1, "acme")
	})
	step("the gateway's faults name the job", func() error {
		typo := job("typo")
		typo.Type = "payment_recieved"
		return also(
			fails("type: is not in the catalog", typo),
			func() error { return fails("[1].type: is not in the catalog", job("fine"), typo) },
		)
	})
	step("a wrong token is refused at once", func() error {
		_, err := carillon.NewHTTPProducer(gateway, "wrong").Send(ctx, job("refused"))
		var refused *carillon.RefusedError
		if !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	step("a job arrives once after 503, a lost connection and a lost answer", retry)
	step("jobs over Redis are stored once, in every lane", func() error {
		if !strings.HasPrefix(os.Getenv("REDIS_URL"), "redis://") {
			fmt.Println("skipped: this program needs redis://host:port in REDIS_URL")
			return nil
		}
		redis, err := dial(os.Getenv("REDIS_URL"))
		if err != nil {
			return err
		}
		defer redis.Close()
		for _, lane := range []carillon.Lane{"", carillon.LaneCritical, carillon.LaneNormal, carillon.LaneBulk} {
			one := job("redis:" + string(lane))
			one.Lane, one.Data = lane, map[string]any{"lines": "a\r\nb", "word": "é"}
			if err := (carillon.Producer{Appender: redis}).Send(ctx, one, one); err != nil {
				return err
			}
			if err := stored("redis:"+string(lane), 1); err != nil {
				return err
			}
		}
		return nil
	})
	step("a webhook's events are verified", webhook)
}

func step(name string, try func() error) {
	if err := try(); err != nil {
		fmt.Printf("FAILED: %s: %v\n", name, err)
		os.Exit(1)
	}
	fmt.Println("ok:", name)
}

func also(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

func job(id string) carillon.Job {
	return carillon.Job{ID: run + ":" + id, User: run, Type: "payment_received", Title: "Payment received"}
}

func fails(want string, jobs ...carillon.Job) error {
	_, err := producer.Send(ctx, jobs...)
	var invalid *carillon.InvalidJobError
	if !errors.As(err, &invalid) || err.Error() != want {
		return fmt.Errorf("got %v, want %s", err, want)
	}
	return nil
}

// stored waits until a job is done, and checks how many notifications it stored.
func stored(id string, count int, org ...string) error {
	var answer struct {
		Final bool
		Reach struct{ Stored int }
	}
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(100 * time.Millisecond) {
		path := "/v1/jobs/" + url.PathEscape(run+":"+id)
		if len(org) > 0 {
			path += "?org=" + org[0]
		}
		status, err := call(http.MethodGet, path, "", &answer)
		if err != nil || status != http.StatusOK && status != http.StatusNotFound {
			return fmt.Errorf("%s: status %d, %v", id, status, err)
		}
		if answer.Reach.Stored >= count && answer.Final {
			break
		}
	}
	if answer.Reach.Stored != count {
		return fmt.Errorf("%s: %d notifications are stored instead of %d", id, answer.Reach.Stored, count)
	}
	return nil
}

func call(method, path, body string, answer any) (int, error) {
	request, err := http.NewRequest(method, strings.TrimRight(gateway, "/")+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if answer == nil {
		return response.StatusCode, nil
	}
	return response.StatusCode, json.NewDecoder(response.Body).Decode(answer)
}

// retry sends through a proxy that answers 503, resets, drops the gateway's answer, then works.
func retry() error {
	place, err := url.Parse(gateway)
	if err != nil {
		return err
	}
	forward := httputil.NewSingleHostReverseProxy(place)
	requests := 0
	began := time.Now()
	proxy := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		requests++
		switch requests {
		case 1:
			writer.Header().Set("Retry-After", "2")
			writer.WriteHeader(http.StatusServiceUnavailable)
			return
		case 3:
			forward.ServeHTTP(httptest.NewRecorder(), request)
		case 4:
			forward.ServeHTTP(writer, request)
			return
		}
		if connection, _, err := writer.(http.Hijacker).Hijack(); err == nil {
			_ = connection.(*net.TCPConn).SetLinger(0)
			_ = connection.Close()
		}
	}))
	defer proxy.Close()
	accepted, err := carillon.NewHTTPProducer(proxy.URL, token).Send(ctx, job("retry"))
	if err != nil || len(accepted) != 1 || requests != 4 || time.Since(began) < 2*time.Second {
		return fmt.Errorf("%d requests, %d accepted, %v", requests, len(accepted), err)
	}
	return stored("retry", 1)
}

// redis is a minimal Redis client that can only append entries.
type redis struct {
	net.Conn
	answers *bufio.Reader
}

func dial(address string) (*redis, error) {
	place, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	connection, err := net.Dial("tcp", place.Host)
	if err != nil {
		return nil, err
	}
	client := &redis{connection, bufio.NewReader(connection)}
	if password, hasPassword := place.User.Password(); hasPassword {
		auth := []string{"AUTH", place.User.Username(), password}
		if place.User.Username() == "" {
			auth = []string{"AUTH", password}
		}
		if err := client.command(auth...); err != nil {
			return nil, err
		}
	}
	if database := strings.Trim(place.Path, "/"); database != "" {
		return client, client.command("SELECT", database)
	}
	return client, nil
}

func (client *redis) Append(_ context.Context, stream string, fields []string) error {
	return client.command(append([]string{"XADD", stream, "*"}, fields...)...)
}

func (client *redis) command(words ...string) error {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := client.Write([]byte(text)); err != nil {
		return err
	}
	answer, err := client.answers.ReadString('\n')
	if err == nil && answer[0] == '$' {
		_, err = client.answers.ReadString('\n') // The id of the entry.
	} else if err == nil && answer[0] != '+' {
		err = errors.New(strings.TrimSpace(answer))
	}
	return err
}

func webhook() error {
	type request struct {
		body   []byte
		header string
	}
	requests := make(chan request, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, incoming *http.Request) {
		body, err := io.ReadAll(incoming.Body)
		if err == nil {
			requests <- request{body, incoming.Header.Get("Carillon-Signature")}
		}
		writer.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()
	var hook struct{ ID, Secret string }
	status, err := call(http.MethodPost, "/v1/webhooks", fmt.Sprintf(`{"url":%q}`, receiver.URL+"/"+run), &hook)
	if status == http.StatusUnprocessableEntity {
		fmt.Println("skipped: the gateway refuses webhooks to this machine; set WEBHOOKS_PRIVATE=on")
		return nil
	}
	if err != nil || status != http.StatusCreated {
		return fmt.Errorf("status %d, %v", status, err)
	}
	defer func() { _, _ = call(http.MethodDelete, "/v1/webhooks/"+hook.ID, "", nil) }()
	secrets := []string{"former", hook.Secret}
	// Dispatchers learn of a new webhook within seconds.
	for repeat := 0; repeat < 60; repeat++ {
		if _, err := producer.Send(ctx, job(fmt.Sprintf("webhook:%d", repeat))); err != nil {
			return err
		}
		select {
		case got := <-requests:
			events, err := carillon.VerifyWebhook(got.body, got.header, secrets, time.Now())
			if err != nil || len(events) == 0 || events[0].ID == "" || time.Since(events[0].At) > time.Hour {
				return fmt.Errorf("got %v, %v", events, err)
			}
			_, changed := carillon.VerifyWebhook(append(got.body, ' '), got.header, secrets, time.Now())
			_, stale := carillon.VerifyWebhook(got.body, got.header, secrets, time.Now().Add(time.Hour))
			if !errors.Is(changed, carillon.ErrInvalidSignature) || !errors.Is(stale, carillon.ErrStaleSignature) {
				return fmt.Errorf("a changed request: %v; an old one: %v", changed, stale)
			}
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
	return errors.New("no request arrived")
}
