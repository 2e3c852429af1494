// Carillon · webhook.go
// SPDX-License-Identifier: Apache-2.0

package carillon

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SignatureTolerance is the largest difference between now and the time of a valid request.
const SignatureTolerance = 5 * time.Minute

var (
	// ErrInvalidSignature is the error for a request that does not come from Carillon, or was changed.
	ErrInvalidSignature = errors.New("the signature is invalid")
	// ErrStaleSignature is the error for a request that may be a replay. It is an ErrInvalidSignature.
	ErrStaleSignature = fmt.Errorf("%w: its time is more than 5 minutes from now", ErrInvalidSignature)
)

// WebhookEvent is a step of a notification, such as "delivered". docs/events.md explains the
// fields; a field that does not apply is empty. An event may come twice, with the same ID, and out
// of order: sort by At.
type WebhookEvent struct {
	ID           string    `json:"id"`
	Event        string    `json:"event"`
	At           time.Time `json:"at"`
	Notification string    `json:"notification"`
	Job          string    `json:"job"`
	User         string    `json:"user"`
	Org          string    `json:"org"`
	Type         string    `json:"type"`
	Category     string    `json:"category"`
	Channel      string    `json:"channel"`
	Platform     string    `json:"platform"`
	App          string    `json:"app"`
	Device       string    `json:"device"`
	Reason       string    `json:"reason"`
}

// VerifyWebhook checks the signature of a webhook request and returns its events.
//
// Pass the raw body and the header Carillon-Signature. One of the secrets must match; pass two
// while you replace one webhook with another. Answer 400 if VerifyWebhook returns an error.
func VerifyWebhook(body []byte, header string, secrets []string, now time.Time) ([]WebhookEvent, error) {
	parts := map[string][]string{}
	for _, part := range strings.Split(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = append(parts[name], value)
	}
	if len(parts["t"]) != 1 {
		return nil, ErrInvalidSignature
	}
	isOurs := false
	for _, secret := range secrets {
		if secret == "" { // Anyone can sign with it.
			return nil, errors.New("secrets: a secret is empty")
		}
		code := hmac.New(sha256.New, []byte(secret))
		code.Write([]byte(parts["t"][0] + "."))
		code.Write(body)
		for _, text := range parts["v1"] {
			given, _ := hex.DecodeString(text)
			isOurs = hmac.Equal(given, code.Sum(nil)) || isOurs
		}
	}
	seconds, err := strconv.ParseInt(parts["t"][0], 10, 64)
	if err != nil || !isOurs {
		return nil, ErrInvalidSignature
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > SignatureTolerance || age < -SignatureTolerance {
		return nil, ErrStaleSignature
	}
	var request struct{ Events []WebhookEvent }
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, fmt.Errorf("the body is signed and holds no events: %w", err)
	}
	return request.Events, nil
}
