// Carillon · job_test.go
// SPDX-License-Identifier: Apache-2.0

package carillon_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"carillon"
)

func payment(id string) carillon.Job {
	return carillon.Job{ID: id, User: "ada", Type: "payment_received", Title: "Payment received"}
}

func TestFieldsHasStringsAsTheyAreAndOtherValuesAsJSON(t *testing.T) {
	moment := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	fields, err := carillon.Fields(carillon.Job{
		Users: []string{"ada", "ben"}, Except: []string{"cleo"}, Type: "payment_received", ID: "payment:1",
		Title: `40 < 50 & "more"`, Data: map[string]any{"text": "<b>"}, Badge: carillon.Ptr(0), Lane: carillon.LaneBulk,
		Channels: []carillon.Channel{carillon.ChannelPush}, ExpiresAt: &moment,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"users", `["ada","ben"]`, "except", `["cleo"]`, "type", "payment_received", "id", "payment:1",
		"title", `40 < 50 & "more"`, "data", `{"text":"<b>"}`, "badge", "0", "lane", "bulk", "channels", `["push"]`,
		"expires_at", "2026-11-20T10:00:00Z",
	}
	if !reflect.DeepEqual(fields, want) {
		t.Errorf("got %q", fields)
	}
	fields, err = carillon.Fields(carillon.Job{All: true, Event: "ping", Args: []any{1}})
	if err != nil || strings.Join(fields, " ") != "all true event ping args [1]" {
		t.Errorf("got %q, %v", fields, err)
	}
}

func TestFieldsNamesEveryFault(t *testing.T) {
	for want, job := range map[string]carillon.Job{
		"user: give exactly one of user, users, topic, all; type: is missing; " +
			"id: is missing; derive it from the event that the job reports: payment:9317": {},
		"user: give exactly one of user, users, topic, all": {User: "ada", All: true, Type: "t", ID: "1"},
		"type: cannot be combined with event":               {User: "ada", Type: "t", Event: "e"},
		"users: must be at most 1000 users; send to a topic, or several jobs": {
			Users: make([]string, 1_001), Type: "t", ID: "1",
		},
		"job: is not JSON: json: unsupported value: NaN": {
			User: "ada", Type: "t", ID: "1", Data: map[string]any{"a": math.NaN()},
		},
		"title: holds the character U+0000; data: holds the character U+0000": {
			User: "ada", Type: "t", ID: "1", Title: "\x00", Data: map[string]any{"a": []string{"\\\x00"}},
		},
		"vars: cannot be combined with title or body": {
			User: "ada", Type: "t", ID: "1", Title: "a", Vars: map[string]any{},
		},
		"vars: holds the character U+0000": {
			User: "ada", Type: "t", ID: "1", Vars: map[string]any{"a\x00": 1},
		},
		"id: is not valid UTF-8; body: is not valid UTF-8": {User: "ada", Type: "t", ID: "\xff", Body: "🎉"[:2]},
		"platform: holds half of a surrogate pair": {
			User: "ada", Type: "t", ID: "1", Platform: map[string]any{"a": json.RawMessage(`"\uD83C"`)},
		},
		"data: is not valid UTF-8": {
			User: "ada", Type: "t", ID: "1", Data: map[string]any{"a": json.RawMessage("\"\xff\"")},
		},
	} {
		_, err := carillon.Fields(job)
		var invalid *carillon.InvalidJobError
		if !errors.As(err, &invalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFieldsKeepsTextsThatLookLikeEscapes(t *testing.T) {
	job := payment("1")
	job.Title = `\u0000 \ufffd` + "\ufffd"
	job.Data = map[string]any{"a": json.RawMessage(`"\ud83c\udf89 \ufffd \\u0000"`)}
	fields, err := carillon.Fields(job)
	if err != nil || !reflect.DeepEqual(fields[6:], []string{
		"title", job.Title, "data", `{"a":"\ud83c\udf89 \ufffd \\u0000"}`,
	}) {
		t.Errorf("got %q, %v", fields, err)
	}
}

func TestFieldsHasEmptyVars(t *testing.T) {
	job := carillon.Job{User: "ada", Type: "t", ID: "1", Vars: map[string]any{}}
	fields, err := carillon.Fields(job)
	if err != nil || strings.Join(fields, " ") != "user ada type t id 1 vars {}" {
		t.Errorf("got %q, %v", fields, err)
	}
	job.Vars = nil
	fields, err = carillon.Fields(job)
	if err != nil || strings.Join(fields, " ") != "user ada type t id 1" {
		t.Errorf("got %q, %v", fields, err)
	}
}
