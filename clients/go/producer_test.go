// Carillon · producer_test.go
// SPDX-License-Identifier: Apache-2.0

package carillon_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"carillon"
)

// recorder returns an Appender that fails from the entry at index `until`, and the entries before.
func recorder(until int) (carillon.Appender, *[]string) {
	var appended []string
	return carillon.AppenderFunc(func(_ context.Context, stream string, fields []string) error {
		if len(appended) == until {
			return errors.New("connection lost")
		}
		appended = append(appended, stream+" "+strings.Join(fields, " "))
		return nil
	}), &appended
}

func TestProducerAppendsToTheStreamOfTheLane(t *testing.T) {
	appender, appended := recorder(-1)
	producer := carillon.Producer{Appender: appender}
	for _, lane := range []carillon.Lane{"", carillon.LaneNormal, carillon.LaneCritical, carillon.LaneBulk} {
		if err := producer.Send(context.Background(), carillon.Job{ID: "1", User: "a", Type: "t", Lane: lane}); err != nil {
			t.Fatal(err)
		}
	}
	want := "carillon:jobs user a type t id 1\ncarillon:jobs user a type t id 1 lane normal\n" +
		"carillon:jobs:critical user a type t id 1 lane critical\ncarillon:jobs:bulk user a type t id 1 lane bulk"
	if got := strings.Join(*appended, "\n"); got != want {
		t.Errorf("got %s", got)
	}
}

func TestProducerSendsNothingIfOneJobIsInvalid(t *testing.T) {
	appender, appended := recorder(-1)
	err := carillon.Producer{Appender: appender}.Send(context.Background(), payment("1"), payment(""))
	if err == nil || !strings.HasPrefix(err.Error(), "[1].id: is missing") || len(*appended) > 0 {
		t.Errorf("got %v, appended %q", err, *appended)
	}
}

func TestProducerStopsAtTheFirstErrorOfRedis(t *testing.T) {
	appender, appended := recorder(1)
	err := carillon.Producer{Appender: appender}.Send(context.Background(), payment("1"), payment("2"), payment("3"))
	if err == nil || err.Error() != "job 2: connection lost" || len(*appended) != 1 {
		t.Errorf("got %v, appended %q", err, *appended)
	}
}

var tags = strings.Fields("agbr mws akgg arf agsp eoi akve acd gxm aedt rvp aahy gio qn ceb aipc")

func TestPartFollowsFromTheHashOfTheUser(t *testing.T) {
	// FNV-1a of "a" and "foobar" are test vectors of the hash: 0xe40c292c and 0xbf9cf968.
	for user, want := range map[string]string{
		"a": "carillon:{gio}", "foobar": "carillon:{gxm}", "zoë": "carillon:{gio}",
	} {
		if got := carillon.Part(user, tags); got != want {
			t.Errorf("Part(%q): got %s, want %s", user, got, want)
		}
	}
	if got := carillon.Part("a", nil); got != "carillon" {
		t.Errorf("without tags: got %s", got)
	}
}

func TestProducerSpreadsJobsOverTheParts(t *testing.T) {
	producer := carillon.Producer{Tags: tags}
	job := carillon.Job{User: "foobar", Lane: carillon.LaneBulk}
	if got := producer.Stream(job); got != "carillon:{gxm}:jobs:bulk" {
		t.Errorf("got %s", got)
	}
	if got := producer.Stream(carillon.Job{ID: "foobar", All: true}); got != "carillon:{gxm}:jobs" {
		t.Errorf("got %s", got)
	}
}
