// Carillon · job.go
// SPDX-License-Identifier: Apache-2.0

// Package carillon sends notifications through Carillon and verifies its webhooks.
//
// Producer appends jobs to Redis, HTTPProducer posts them to the gateway, and VerifyWebhook checks
// the events that Carillon posts to you.
package carillon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Version is the version of the package and of the server that it comes with.
const Version = "1.0.0-dev"

type (
	Lane         string // LaneCritical, LaneNormal or LaneBulk.
	Severity     string // SeverityAlert, SeverityWarning or SeverityInfo.
	Delivery     string // DeliveryPush or DeliveryInApp.
	PushPriority string // PriorityHigh or PriorityNormal.
	Channel      string // ChannelInApp, ChannelPush or ChannelEmail.
)

const (
	LaneCritical, LaneNormal, LaneBulk           Lane         = "critical", "normal", "bulk"
	SeverityAlert, SeverityWarning, SeverityInfo Severity     = "alert", "warning", "info"
	DeliveryPush, DeliveryInApp                  Delivery     = "push", "in_app"
	PriorityHigh, PriorityNormal                 PushPriority = "high", "normal"
	ChannelInApp, ChannelPush, ChannelEmail      Channel      = "in_app", "push", "email"
)

// Job is a request to notify someone. docs/jobs.md explains every field. Empty fields are left out,
// except Vars: an empty map selects the type's own texts, and nil is left out.
//
// Give exactly one of User, Users, Topic and All, and either Type or Event. A job with a Type needs
// an ID that follows from the event that it reports, such as "payment:9317": then you can send it
// again after a timeout or a crash, and each user is notified once.
type Job struct {
	User   string   `json:"user,omitempty"`
	Users  []string `json:"users,omitempty"`
	Topic  string   `json:"topic,omitempty"`
	All    bool     `json:"all,omitempty"`
	Except []string `json:"except,omitempty"`

	Type        string `json:"type,omitempty"`
	ID          string `json:"id,omitempty"`
	Org         string `json:"org,omitempty"`
	TraceParent string `json:"traceparent,omitempty"`

	Title      string         `json:"title,omitempty"`
	Body       string         `json:"body,omitempty"`
	Template   string         `json:"template,omitempty"`
	Vars       map[string]any `json:"vars"`
	Data       map[string]any `json:"data,omitempty"`
	EntityType string         `json:"entity_type,omitempty"`
	EntityID   string         `json:"entity_id,omitempty"`
	Category   string         `json:"category,omitempty"`
	Sound      string         `json:"sound,omitempty"`
	State      string         `json:"state,omitempty"`
	URL        string         `json:"url,omitempty"`
	Image      string         `json:"image,omitempty"`
	Badge      *int           `json:"badge,omitempty"`
	Platform   map[string]any `json:"platform,omitempty"`

	Severity     Severity     `json:"severity,omitempty"`
	Delivery     Delivery     `json:"delivery,omitempty"`
	Lane         Lane         `json:"lane,omitempty"`
	PushPriority PushPriority `json:"push_priority,omitempty"`
	Channels     []Channel    `json:"channels,omitempty"`
	CollapseKey  string       `json:"collapse_key,omitempty"`
	Digest       string       `json:"digest,omitempty"`

	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
	KeepUntil    *time.Time `json:"keep_until,omitempty"`
	DeliverAt    *time.Time `json:"deliver_at,omitempty"`
	DeliverLocal string     `json:"deliver_local,omitempty"`

	Event string `json:"event,omitempty"`
	Args  []any  `json:"args,omitempty"`
}

// Ptr returns a pointer to a value, for Badge and the times of a Job.
func Ptr[Value any](value Value) *Value { return &value }

// Fault is a field of a job that breaks a rule.
type Fault struct{ Field, Reason string }

// InvalidJobError lists every fault of jobs that Carillon would refuse.
//
// With several jobs, a field is "[17].title" if the job at index 17 has the fault.
type InvalidJobError struct{ Faults []Fault }

func (err *InvalidJobError) Error() string {
	texts := make([]string, len(err.Faults))
	for index, fault := range err.Faults {
		texts[index] = fault.Field + ": " + fault.Reason
	}
	return strings.Join(texts, "; ")
}

// Fields returns the fields of a job's stream entry as alternating names and values: strings as
// they are, other values as JSON.
//
// It returns an *InvalidJobError if the job breaks a rule. Carillon checks more rules when it gets
// the job, such as those of your catalog.
func Fields(job Job) ([]string, error) {
	_, fields, err := prepare([]Job{job})
	if err != nil {
		return nil, err
	}
	return fields[0], nil
}

// prepare returns the JSON and the fields of jobs, or the faults of all of them.
func prepare(jobs []Job) (texts [][]byte, entries [][]string, err error) {
	var faults []Fault
	for index, job := range jobs {
		text, err := encode(job)
		entry, found := flat(text)
		found = append(job.faults(), found...)
		if err != nil {
			found = append(found, Fault{"job", "is not JSON: " + err.Error()})
		}
		for _, fault := range found {
			faults = append(faults, Fault{placed(fault.Field, index, len(jobs)), fault.Reason})
		}
		texts, entries = append(texts, text), append(entries, entry)
	}
	if len(faults) > 0 {
		return nil, nil, &InvalidJobError{faults}
	}
	return texts, entries, nil
}

// faults checks the rules that need no catalog.
func (job Job) faults() (faults []Fault) {
	require := func(holds bool, field, reason string) {
		if !holds {
			faults = append(faults, Fault{field, reason})
		}
	}
	audiences := 0
	for _, isGiven := range []bool{job.User != "", len(job.Users) > 0, job.Topic != "", job.All} {
		if isGiven {
			audiences++
		}
	}
	require(audiences == 1, "user", "give exactly one of user, users, topic, all")
	require(len(job.Users) <= 1_000, "users", "must be at most 1000 users; send to a topic, or several jobs")
	require(job.Type != "" || job.Event != "", "type", "is missing")
	require(job.Type == "" || job.Event == "", "type", "cannot be combined with event")
	require(job.Vars == nil || job.Title == "" && job.Body == "", "vars", "cannot be combined with title or body")
	isLane := job.Lane == "" || job.Lane == LaneCritical || job.Lane == LaneNormal || job.Lane == LaneBulk
	require(isLane, "lane", "must be one of critical, normal, bulk")
	reason := "is missing; derive it from the event that the job reports: payment:9317"
	require(job.ID != "" || job.Event != "", "id", reason)
	return faults
}

// placed puts the index of the job before a field if the call has several jobs.
func placed(field string, index, jobs int) string {
	if jobs == 1 {
		return field
	}
	return fmt.Sprintf("[%d].%s", index, field)
}

// encode returns compact JSON without HTML escapes, which would count against the size limits.
func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimRight(buffer.Bytes(), "\n"), err
}

// flat returns the members of a job's JSON as alternating names and values, without nulls: strings
// as they are, others as JSON. It also returns a fault for each text that Carillon cannot store.
func flat(object []byte) (fields []string, faults []Fault) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.Token() // The opening brace.
	for decoder.More() {
		name, _ := decoder.Token()
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			break
		}
		text := string(value)
		if text == "null" {
			continue
		}
		if reason := textFault(name.(string), value); reason != "" {
			faults = append(faults, Fault{name.(string), reason})
		}
		if text[0] == '"' {
			json.Unmarshal(value, &text)
		}
		fields = append(fields, name.(string), text)
	}
	return fields, faults
}

// escapes matches the escapes in a JSON text. The group is the code of a \u escape outside a pair.
var escapes = regexp.MustCompile(`\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u(....)|.)`)

// textFault returns the reason why Carillon cannot store the texts of a field, or nothing.
func textFault(name string, value []byte) string {
	if !utf8.Valid(value) {
		return "is not valid UTF-8"
	}
	if !bytes.Contains(value, []byte(`\u`)) {
		return ""
	}
	mayBeRaw := name == "vars" || name == "data" || name == "platform" || name == "args"
	for _, match := range escapes.FindAllSubmatch(value, -1) {
		code := strings.ToLower(string(match[1]))
		switch {
		case code == "0000":
			return "holds the character U+0000"
		case code >= "d800" && code <= "dfff":
			return "holds half of a surrogate pair"
		// The encoder writes this escape only for a byte that is not UTF-8.
		case code == "fffd" && !mayBeRaw:
			return "is not valid UTF-8"
		}
	}
	return ""
}
