package sqldiff

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// null is how COPY writes NULL.
const null = `\N`

// dice makes rows; the same seed makes the same rows, so all servers get the same.
type dice struct{ *rand.Rand }

func newDice(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 5))} }

func (d dice) pick(words ...string) string { return words[d.IntN(len(words))] }

// orNull is NULL in some percent of the cases.
func (d dice) orNull(percent int, value string) string {
	if d.IntN(100) < percent {
		return null
	}
	return value
}

// between is a number with two digits after the point.
func (d dice) between(low, high int) string {
	cents := low*100 + d.IntN((high-low)*100)
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return fmt.Sprintf("%s%d.%02d", sign, cents/100, cents%100)
}

// quarter is a float whose sums are exact in any order.
func (d dice) quarter(low, high int) string {
	return fmt.Sprint(float64(low) + float64(d.IntN((high-low)*4))/4)
}

// day is a date of few years, so that days repeat.
func (d dice) day(firstYear, years int) string {
	return fmt.Sprintf("%04d-%02d-%02d", firstYear+d.IntN(years), 1+d.IntN(12), 1+d.IntN(28))
}

// Rows are the rows of every table, as lines of COPY's text format.
type Rows map[string][]string

func (r Rows) add(table string, fields ...any) {
	texts := make([]string, len(fields))
	for i, f := range fields {
		texts[i] = fmt.Sprint(f)
	}
	r[table] = append(r[table], strings.Join(texts, "\t"))
}

// NewRows makes the rows of all tables.
func NewRows() Rows {
	r := Rows{}
	r.shopBase(newDice(1))
	r.shopOrders(newDice(2))
	r.shopRest(newDice(3))
	r.samples(newDice(6))
	r.analytics(newDice(4))
	r.entry(newDice(5))
	return r
}

// names differ by case, accents and blanks, and repeat.
var names = []string{
	"Ana", "ana", "Ángel", "angela", "Zoë", "zoe", "Łukasz", "O'Brien", "Óscar", "oscar", "Émile", "emile", "van Dijk", "Van Dijk",
	"Straße", "strasse", "李雷", "", "a_b", "100%", "Ana", "Björn", "bjorn", "Ñandú",
}

func (r Rows) shopBase(d dice) {
	r["countries"] = []string{
		"de\tGermany\tEurope\t83200000", "fr\tFrance\tEurope\t67800000", "es\tSpain\tEurope\t47400000", "jp\tJapan\tAsia\t125700000",
		"us\tUnited States\tAmericas\t331900000", "br\tBrazil\tAmericas\t214300000", "aq\tAntarctica\t\\N\t0", "xx\tNowhere\t\\N\t\\N",
	}
	for i := range 24 {
		attrs := fmt.Sprintf(`{"color": "%s", "size": %d, "dims": [%d, %d]}`, d.pick("red", "green", "blue"), d.IntN(5), d.IntN(9), d.IntN(9))
		r.add("products", i+1, d.pick("Lamp", "lamp", "Desk", "Chair", "Ärmel", "Vase")+fmt.Sprint(" ", i+1), d.orNull(15, d.pick("home", "office", "toys", "Office")),
			d.orNull(10, d.between(1, 90)), d.orNull(20, attrs), d.orNull(10, d.quarter(0, 20)))
	}
	for i := range 48 {
		tags := d.pick("{}", `{new}`, `{vip,new}`, `{vip,"two words"}`, `{old,NULL}`, null)
		profile := d.orNull(25, fmt.Sprintf(`{"age": %d, "langs": ["%s", "en"], "address": {"zip": "%05d"}}`, 18+d.IntN(50), d.pick("de", "fr", "es"), d.IntN(100000)))
		r.add("customers", 3*i-7, names[d.IntN(len(names))], d.orNull(15, d.pick("Berlin", "berlin", "Paris", "Kyoto", "Málaga", "Malaga")),
			d.orNull(10, d.pick("de", "fr", "es", "jp", "us", "br")), d.orNull(10, d.between(-500, 3000)), d.orNull(10, d.day(2018, 3)),
			tags, profile, d.pick("t", "f", "f"), d.orNull(40, fmt.Sprint(3*d.IntN(48)-7)))
	}
}

func (r Rows) shopOrders(d dice) {
	for id := range 130 {
		// The first customers have many orders, the last ones none; some orders have no customer.
		customer := 3*min(d.IntN(48), d.IntN(48)) - 7
		if d.IntN(15) == 0 {
			customer = 1000 + d.IntN(5)
		}
		at := d.orNull(8, fmt.Sprintf("%s %02d:%02d:00+00", d.day(2020, 2), d.IntN(24), 15*d.IntN(4)))
		r.add("orders", customer, id+1, d.pick("new", "paid", "paid", "shipped", "lost"), d.orNull(8, d.between(0, 400)), at,
			d.orNull(50, d.pick("fragile", "Fragile", "gift", "call first", `tab\there`)))
		for line := range d.IntN(5) {
			r.add("items", customer, id+1, line+1, d.orNull(8, fmt.Sprint(1+d.IntN(27))), 1+d.IntN(9), d.orNull(5, d.between(1, 90)),
				d.orNull(30, d.quarter(0, 1)))
		}
	}
}

func (r Rows) shopRest(d dice) {
	for i := range 90 {
		kind := d.pick("login", "logout", "click", "click", "Click", "error")
		payload := d.orNull(30, fmt.Sprintf(`{"n": %d, "path": "/%s", "ok": %v}`, d.IntN(20), d.pick("a", "b", "c/d"), d.IntN(2) == 0))
		r.add("events", fmt.Sprintf("dev-%02d", d.IntN(11)), kind, i, d.orNull(20, fmt.Sprint(3*d.IntN(52)-7)),
			d.orNull(6, d.day(2021, 1)+fmt.Sprintf(" %02d:00:00", d.IntN(24))), d.orNull(10, d.quarter(-20, 60)), payload)
	}
	for i := range 30 {
		r.add("accounts", fmt.Sprintf("%08x-0000-4000-8000-%012x", d.Uint32(), i), d.orNull(10, fmt.Sprint(3*d.IntN(48)-7)), d.between(-200, 5000),
			d.orNull(10, d.day(2019, 4)+" 00:00:00+00"), d.pick("basic", "gold", "Gold", null), d.pick("a", "ab", "abc", null), d.pick("0000", "1010", "0111", null))
	}
	for i := range 20 {
		r.add("tickets", i+1, d.pick("late", "broken", "Broken", "thanks"), d.orNull(15, fmt.Sprint(3*d.IntN(48)-7)), d.pick("t", "f", null))
	}
	managers := []string{null, "1", "1", "2", "2", "3", "3", "4", "5", "5", "6", "9", "9", null}
	for i, m := range managers {
		r.add("staff", d.pick("sales", "it", "legal", "ops"), i+1, names[d.IntN(len(names))], m, d.orNull(10, d.between(2000, 9000)), d.orNull(10, d.day(2010, 10)))
	}
	for i := range 12 {
		r.add("audit", i+1, d.pick("order", "refund", "note"), d.orNull(20, d.between(-100, 100)), d.orNull(20, fmt.Sprint(3*d.IntN(48)-7)))
	}
	for i := range 28 {
		r.add("calendar", fmt.Sprintf("2020-02-%02d", i+1), d.orNull(80, d.pick("Carnival", "Local day")))
	}
}
