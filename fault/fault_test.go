package fault

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestReached(t *testing.T) {
	var log strings.Builder
	p, err := Parse("after-commit=kill@2,before-prepare=stop", &log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, point := range []string{
		"before prepare n2", "before prepare n3", "after commit n1", "after commit prepared n2", "after commit n1", "after commit n1", "odd",
	} {
		p.signal = func(s syscall.Signal) { got = append(got, fmt.Sprint(i, " ", s)) }
		p.Reached(point)
	}
	if want := "[0 stopped (signal) 4 killed]"; fmt.Sprint(got) != want {
		t.Errorf("acted at %v, want %s", got, want)
	}
	if want := "fault point before-prepare: stopped (signal)\nfault point after-commit: killed\n"; log.String() != want {
		t.Errorf("wrote %q, want %q", log.String(), want)
	}
}

func TestParse(t *testing.T) {
	if p, err := Parse("", nil); p != nil || err != nil {
		t.Errorf("nothing gave %v, %v", p, err)
	}
	for _, text := range []string{"x", "x=", "x=explode", "=kill", "x=kill@", "x=kill@0", "x=kill@-1", "x=kill@y", "x=kill,"} {
		if _, err := Parse(text, nil); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
