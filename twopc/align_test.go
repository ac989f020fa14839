package twopc

import (
	"strings"
	"testing"
)

func TestLagging(t *testing.T) {
	t.Parallel()
	both := map[string][]string{"g": {"a", "b"}}
	none := map[string][]string{}
	prepared := map[string]bool{"g": true}
	for _, test := range []struct {
		name  string
		views []View
		want  string
		wait  bool
	}{
		{"nothing", []View{{"a", 1, nil, none}, {"b", 1, nil, none}}, "", false},
		{"agree", []View{{"a", 1, nil, both}, {"b", 1, nil, both}}, "", false},
		{"same round", []View{{"a", 1, nil, both}, {"b", 1, nil, none}}, "b", false},
		{"earlier", []View{{"a", 2, nil, both}, {"b", 1, nil, none}}, "b", false},
		{"later and still prepared", []View{{"a", 1, nil, both}, {"b", 2, prepared, none}}, "b", true},
		{"later and not prepared: there is no such transaction", []View{{"a", 1, nil, both}, {"b", 2, nil, none}}, "", false},
		{"a participant that is not read", []View{{"a", 1, nil, both}, {"c", 1, nil, none}}, "", false},
		{"each lacks one", []View{
			{"a", 1, nil, map[string][]string{"g": {"a", "b"}}}, {"b", 1, nil, map[string][]string{"h": {"b", "a"}}},
		}, "a b", false},
	} {
		nodes, wait, void := Lagging(test.views)
		if got := strings.Join(nodes, " "); got != test.want || wait != test.wait || (len(void) > 0) != strings.Contains(test.name, "no such transaction") {
			t.Errorf("%s: %q %v, want %q %v", test.name, got, wait, test.want, test.wait)
		}
	}
}
