package sqldiff

import "strings"

// samples have values that are equal and look different, or that no order but PostgreSQL's puts in their place.
func (r Rows) samples(d dice) {
	one := func(words ...string) string { return d.orNull(12, d.pick(words...)) }
	for i := range 60 {
		r.add("samples", i-4, d.pick("a", "B", "b", "ä", "c d"),
			one("NaN", "-0", "0", "Infinity", "-Infinity", "1.5", "-1e300", "1e-300", "0.1"), one("NaN", "-0", "0", "0.1", "Infinity", "3.4e38"),
			one("NaN", "0", "0.0", "0.00", "-1.50", "-1.5", "1e40", "Infinity", "-Infinity", "12.340"),
			one("1 mon", "30 days", "720:00:00", "-1 day", "24:00:00", "1 day", "1 year 2 mons 3 days 04:05:06.7", "00:00:00"),
			one("10:00:00+02", "08:00:00+00", "09:00:00+01", "23:59:59.5-11", "00:00:00+14"), one("00:00:00", "24:00:00", "12:30:00.25"),
			one("a", "a ", "ab", "", "abc   ", "Z"), one("a", "a ", "ab", "", "Z", "é"), one("Ana", "ana", "ANA", "áná", "bob", "BOB", ""),
			one("{}", "{1,NULL,3}", "{1,2}", "{NULL}", "{1}", "[2:3]={1,2}", "{{1,2},{3,4}}"), one("{}", "{a,NULL}", `{"a b",c}`, `{"",NULL}`, "{A}"),
			one(`{"b": 1, "a": [1, 2.0, null]}`, `{"a": 1}`, "[]", "{}", "null", "1", "1.0", `"x"`, "true", `[3, 2]`), one(`{"b":1,  "a":2}`, "[1,2]", `"x"`),
			one("empty", "[1,5)", "[1,4]", "(,3)", "[3,)", "(,)"), one("{}", "{[1,3),[5,7)}", "{[1,3),[3,7)}", "{(,)}"), one("[2020-01-01,2020-02-01)", "empty", "[2020-01-15,)"),
			one("0.00", "5.00", "1234.50"), one("sad", "ok", "happy"), one(`("Main St",3)`, `("Main St",)`, "(,)", "(b,1)"), one("101", "", "0101", "1"),
			one(`\\x`, `\\x00ff`, `\\x61`), one("10.0.0.1", "10.0.0.1/8", "::1", "10.0.0.2"), one("10.0.0.0/8", "10.0.0.0/16", "::/0"),
			one("08:00:2b:01:02:03", "08:00:2b:01:02:04"), one("(1,2)", "(0,-0)"), one("'cat':3 'fat':2", "'a':1A", ""), one("$1.50", "-$2.00", "$1,000.00"),
			one("<a>1</a>", "text"), one("t", "f"))
	}
	r["samples"] = append(r["samples"], "100\tz"+strings.Repeat("\t"+null, 29))
}
