package sqldiff

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Report collects outcomes. A case is as good as its worst outcome over all targets and modes.
type Report struct {
	out     io.Writer
	order   []string // categories, as they came
	worst   map[*Case]Outcome
	targets []string
	skipped []string
	// runs counts comparisons.
	runs        int
	differences int
	unknown     int            // differences that are no known bugs
	known       map[string]int // the others, by what they are known as
}

func newReport(out io.Writer) *Report {
	return &Report{out: out, worst: map[*Case]Outcome{}, known: map[string]int{}}
}

// add takes an outcome; the first difference of a case is printed in full, further ones in a line.
func (r *Report) add(o Outcome) {
	r.runs++
	before, seen := r.worst[o.Case]
	if o.Verdict == Different {
		r.differences++
		known := o.known()
		if known != "" {
			r.known[known]++
		} else {
			r.unknown++
		}
		r.printDifference(o, known, seen && before.Verdict == Different)
	}
	if !seen || o.Verdict > before.Verdict {
		r.worst[o.Case] = o
		if o.Verdict == Refused {
			fmt.Fprintf(r.out, "refused (%s:%d, %s): %s\n", o.Case.File, o.Case.Line, o.Target, o.Reason)
		}
	}
	if !slices.Contains(r.order, o.Case.Category) {
		r.order = append(r.order, o.Case.Category)
	}
}

func (r *Report) printDifference(o Outcome, known string, again bool) {
	where := fmt.Sprintf("%s:%d, %s, %s", o.Case.File, o.Case.Line, o.Target, o.Mode)
	if known != "" && r.known[known] > 3 {
		return // the summary counts them
	}
	if again {
		fmt.Fprintf(r.out, "DIFFERENT too (%s): %s\n", where, o.Reason)
		return
	}
	fmt.Fprintf(r.out, "DIFFERENT (%s): %s\n%s\n", where, o.Reason, indent(o.Case.String()))
	if len(o.Case.Steps) > 1 {
		fmt.Fprintf(r.out, "  at: %s\n", o.Step)
	}
	fmt.Fprintf(r.out, "  PostgreSQL:\n%s  pgshoal:\n%s\n", indent(indent(o.Want)), indent(indent(o.Got)))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

type tally struct{ all, equal, refused, different int }

func (t *tally) count(v Verdict) {
	t.all++
	switch v {
	case Equal:
		t.equal++
	case Refused:
		t.refused++
	case Different:
		t.different++
	}
}

func (t *tally) add(other tally) {
	t.all += other.all
	t.equal += other.equal
	t.refused += other.refused
	t.different += other.different
}

func (r *Report) tallies() (by map[string]*tally, total tally) {
	by = map[string]*tally{}
	for c, o := range r.worst {
		if by[c.Category] == nil {
			by[c.Category] = &tally{}
		}
		by[c.Category].count(o.Verdict)
		total.count(o.Verdict)
	}
	return by, total
}

// summary prints the counts by category.
func (r *Report) summary() {
	by, total := r.tallies()
	fmt.Fprintf(r.out, "\n%-28s %10s %7s %8s %10s\n", "category", "statements", "equal", "refused", "different")
	line := func(name string, t tally) {
		fmt.Fprintf(r.out, "%-28s %10d %7d %8d %10d\n", name, t.all, t.equal, t.refused, t.different)
	}
	for _, name := range r.order {
		line(name, *by[name])
	}
	line("all", total)
	fmt.Fprintf(r.out, "%d comparisons on: %s\n", r.runs, strings.Join(r.targets, "; "))
	for _, s := range r.skipped {
		fmt.Fprintf(r.out, "left out: %s\n", s)
	}
	for _, k := range slices.Sorted(maps.Keys(r.known)) {
		fmt.Fprintf(r.out, "known difference, %d times: %s\n", r.known[k], k)
	}
}

// quoted is what makes two refusals for one reason look different.
var quoted = regexp.MustCompile(`"[^"]*"|\d+`)

// listed is up to how many refused statements the document names one by one.
const listed = 100

// Document is the generated part of docs/sql-support.md. Random statements are left out: it would be
// another document every time.
func (r *Report) Document() string {
	by, _ := r.tallies()
	var total tally
	order := slices.DeleteFunc(slices.Clone(r.order), func(name string) bool { return strings.HasPrefix(name, "random") })
	for _, name := range order {
		total.add(*by[name])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "`make sqldiff` ran %d statements on one PostgreSQL and on clusters (%s),\nin the simple and the extended protocol, with results in text and binary, and compared\n", total.all, strings.Join(r.targets, "; "))
	b.WriteString("rows, columns, tags, SQLSTATEs and what is stored afterwards. A statement counts as refused if any of these clusters refuses it.\n\n")
	b.WriteString("| category | statements | equal | refused | different |\n|---|---|---|---|---|\n")
	for _, name := range order {
		t := by[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, t.all, t.equal, t.refused, t.different)
	}
	fmt.Fprintf(&b, "| **all** | %d | %d | %d | %d |\n", total.all, total.equal, total.refused, total.different)
	for _, s := range r.skipped {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", s)
	}
	for _, k := range slices.Sorted(maps.Keys(r.known)) {
		fmt.Fprintf(&b, "\nDifferent, a known bug: %s.\n", k)
	}
	if total.refused > 0 {
		r.documentReasons(&b)
	}
	if total.refused > 0 && total.refused <= listed {
		r.documentRefused(&b)
	}
	return b.String()
}

func (r *Report) documentReasons(b *strings.Builder) {
	reasons := map[string]int{}
	for _, o := range r.worst {
		if o.Verdict == Refused && !strings.HasPrefix(o.Case.Category, "random") {
			reasons[quoted.ReplaceAllString(o.Reason, "...")]++
		}
	}
	names := slices.SortedFunc(maps.Keys(reasons), func(x, y string) int {
		if reasons[x] != reasons[y] {
			return reasons[y] - reasons[x]
		}
		return strings.Compare(x, y)
	})
	b.WriteString("\n| refused because | statements |\n|---|---|\n")
	for _, name := range names {
		fmt.Fprintf(b, "| %s | %d |\n", strings.ReplaceAll(name, "|", `\|`), reasons[name])
	}
}

func (r *Report) documentRefused(b *strings.Builder) {
	b.WriteString("\nRefused statements:\n\n```sql\n")
	var refused []*Case
	for c, o := range r.worst {
		if o.Verdict == Refused && !strings.HasPrefix(c.Category, "random") {
			refused = append(refused, c)
		}
	}
	slices.SortFunc(refused, func(x, y *Case) int { return strings.Compare(x.place(), y.place()) })
	for _, c := range refused {
		fmt.Fprintf(b, "%s\n", c)
	}
	b.WriteString("```\n")
}

func (c *Case) place() string { return fmt.Sprintf("%s:%06d", c.File, c.Line) }

// The generated part of the document lies between these lines.
const (
	opening = "<!-- generated by make sqldiff -->"
	closing = "<!-- end of the generated part -->"
)

// Replace puts the report into a document.
func (r *Report) Replace(document string) (string, error) {
	before, rest, opened := strings.Cut(document, opening+"\n")
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		return "", fmt.Errorf("the document has no lines %q and %q", opening, closing)
	}
	return before + opening + "\n" + r.Document() + closing + after, nil
}

// Differences is how many comparisons failed.
func (r *Report) Differences() int { return r.differences }
