// Carillon · webhook_test.go
// SPDX-License-Identifier: Apache-2.0

package carillon_test

import (
	"errors"
	"testing"
	"time"

	"carillon"
)

// A signature that the code of docs/events.md made.
const (
	body   = `{"events":[{"id":"1-0","event":"sent","at":"2026-11-20T10:00:00.000Z","job":"payment:1","reason":null}]}`
	secret = "whsec"
	header = "t=1795168800,v1=c3246e79f624ed93b15fa8680100b1912e2677b1a64da37c32b5fbbea329abde"
)

var sent = time.Unix(1_795_168_800, 0)

func TestVerifyWebhookReturnsTheEventsOfASignedRequest(t *testing.T) {
	for _, text := range []string{header, header + ",v2=x", "v1=00," + header, " t=1795168800, " + header[13:]} {
		events, err := carillon.VerifyWebhook([]byte(body), text, []string{"old", secret}, sent.Add(time.Minute))
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: got %v, %v", text, events, err)
		}
		event := events[0]
		if event.Event != "sent" || event.Job != "payment:1" || event.Reason != "" || !event.At.Equal(sent) {
			t.Errorf("got %+v", event)
		}
	}
}

func TestVerifyWebhookRefusesWhatCarillonDidNotSign(t *testing.T) {
	check := func(body, header string, secrets ...string) {
		t.Helper()
		_, err := carillon.VerifyWebhook([]byte(body), header, secrets, sent)
		if !errors.Is(err, carillon.ErrInvalidSignature) {
			t.Errorf("%s: got %v", header, err)
		}
	}
	check(body+" ", header, secret)
	check(body, header, "another")
	check(body, header)
	for _, text := range []string{"", "t=1795168800", "v1=00", "t=1795168800,v1=", header + ",t=1"} {
		check(body, text, secret)
	}
	check(body, "t=1795168801"+header[12:], secret)
	check(body, "t=x,v1=828ea9be748173984306a2861c40f15127852d4e2edaa6532c3ce2d20b76bd65", secret)
}

func TestVerifyWebhookRefusesAnEmptySecret(t *testing.T) {
	signed := "t=1795168800,v1=dc1b3c4eab47a0d81f424c72e45a62f61df59201b664753f581b9dde7bf54e6f"
	if _, err := carillon.VerifyWebhook([]byte(body), signed, []string{secret, ""}, sent); err == nil {
		t.Error("accepted")
	}
}

func TestVerifyWebhookRefusesOldTimes(t *testing.T) {
	for _, age := range []time.Duration{-301 * time.Second, 301 * time.Second, time.Hour} {
		_, err := carillon.VerifyWebhook([]byte(body), header, []string{secret}, sent.Add(age))
		if !errors.Is(err, carillon.ErrStaleSignature) || !errors.Is(err, carillon.ErrInvalidSignature) {
			t.Errorf("%s: got %v", age, err)
		}
	}
}
