// Carillon · producer_test.go
// SPDX-License-Identifier: Apache-2.0

package carillon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"carillon"
)

// recorder returns an Appender that fails from the entry at index `until`, and what it appended.
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

func TestPartNamesTheStreamsThatDispatchersRead(t *testing.T) {
	for _, test := range []struct {
		user  string
		parts int
		want  string
	}{
		{"ada", 0, "carillon"}, {"ada", 1, "carillon"}, {"ada", 16, "carillon:{aahy}"}, {"é", 64, "carillon:{jwb}"},
		{"ada", 256, "carillon:{ahlm}"}, {"é", 2, "carillon:{nrv}"}, {"ben", 3, "carillon:{fjl}"},
	} {
		if got := carillon.Part(test.user, test.parts); got != test.want {
			t.Errorf("Part(%q, %d): got %s, want %s", test.user, test.parts, got, test.want)
		}
	}
	found := map[string]bool{}
	for user := 0; user < 1_000; user++ {
		found[carillon.Part(fmt.Sprint(user), 16)] = true
	}
	for _, tag := range strings.Fields("agbr mws akgg arf agsp eoi akve acd gxm aedt rvp aahy gio qn ceb aipc") {
		if !found["carillon:{"+tag+"}"] {
			t.Errorf("no user in part %s", tag)
		}
	}
}

func TestProducerSpreadsJobsOverTheParts(t *testing.T) {
	producer := carillon.Producer{Parts: 16}
	job := carillon.Job{User: "ada", Lane: carillon.LaneBulk}
	if got := producer.Stream(job); got != carillon.Part("ada", 16)+":jobs:bulk" {
		t.Errorf("got %s", got)
	}
	if got := producer.Stream(carillon.Job{ID: "board:1", All: true}); got != carillon.Part("board:1", 16)+":jobs" {
		t.Errorf("got %s", got)
	}
}
