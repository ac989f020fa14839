package sqldiff

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/sqltext"
)

//go:embed corpus/*.sql
var corpusFiles embed.FS

// A Case is one statement of the corpus, or a transaction of several, with what must be known to compare it.
type Case struct {
	Category string
	File     string
	Line     int
	Steps    []string
	// Params are those of every step that has parameters; nil is NULL.
	Params [][]byte
	// Data is what COPY FROM STDIN reads.
	Data string

	Ordered bool // every row has its place, whatever the statement's ORDER BY lets one see
	Approx  bool // floating-point numbers may differ in their last digits, as they do between plans
	Runs    bool // only that it runs is compared: EXPLAIN
	Count   bool // only the number of rows is compared: random()
	Simple  bool // cannot be sent in the extended protocol
	Writes  bool // tables are compared afterwards
	Fails   bool // PostgreSQL itself gives an error; without it that would be a slip of the pen
}

// String is the text of a case, as it is reported.
func (c *Case) String() string { return strings.Join(c.Steps, ";\n") + ";" }

// writes finds statements that may change tables; one too many costs only time.
var writes = regexp.MustCompile(`(?i)\b(insert|update|delete|merge|truncate|nextval|create|drop|alter|into|from\s+stdin)\b`)

// onlySimple finds statements for which the extended protocol has no place.
var onlySimple = regexp.MustCompile(`(?i)^\s*(copy|execute|prepare|declare|fetch|move|close)\b`)

// ReadCorpus reads all hand-written cases.
func ReadCorpus() ([]*Case, error) {
	entries, err := corpusFiles.ReadDir("corpus")
	if err != nil {
		return nil, err
	}
	var all []*Case
	for _, e := range entries {
		text, err := corpusFiles.ReadFile(path.Join("corpus", e.Name()))
		if err != nil {
			return nil, err
		}
		cases, err := parseCases(e.Name(), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		all = append(all, cases...)
	}
	return all, nil
}

// parseCases cuts a file into cases: a statement each, or all from BEGIN to COMMIT or ROLLBACK. Lines
// that begin with --@ tell how to compare the next case. The file's name is a number and the category.
func parseCases(file, text string) ([]*Case, error) {
	spans, ok := sqltext.Split(text, true)
	if !ok {
		return nil, fmt.Errorf("cannot be split into statements")
	}
	_, category, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "-")
	var cases []*Case
	var open *Case
	for _, span := range spans {
		sql, directives, skipped := cutComments(text[span.Start:span.End])
		if sql == "" {
			continue
		}
		c := open
		if c == nil {
			c = &Case{Category: category, File: file, Line: 1 + strings.Count(text[:span.Start], "\n") + skipped}
			cases = append(cases, c)
		}
		for _, d := range directives {
			if err := c.direct(d); err != nil {
				return nil, fmt.Errorf("line %d: %w", c.Line, err)
			}
		}
		c.Steps = append(c.Steps, sql)
		switch sqltext.FirstKeyword(sql) {
		case "BEGIN":
			open = c
		case "COMMIT", "ROLLBACK":
			if !strings.Contains(strings.ToUpper(sql), " TO ") {
				open = nil
			}
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the transaction has no end", open.Line)
	}
	for _, c := range cases {
		c.Writes = writes.MatchString(c.String())
		c.Fails = c.Fails || category == "errors"
		c.Simple = c.Simple || slices.ContainsFunc(c.Steps, onlySimple.MatchString)
	}
	return cases, nil
}

// cutComments takes the comment lines before a statement away and returns the directives among them.
func cutComments(text string) (sql string, directives []string, skipped int) {
	for {
		line, rest, more := strings.Cut(text, "\n")
		trimmed := strings.TrimSpace(line)
		if trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			return strings.TrimSpace(text), directives, skipped
		}
		if d, ok := strings.CutPrefix(trimmed, "--@"); ok {
			directives = append(directives, strings.TrimSpace(d))
		}
		if !more {
			return "", directives, skipped
		}
		text = rest
		skipped++
	}
}

func (c *Case) direct(directive string) error {
	word, rest, _ := strings.Cut(directive, " ")
	switch word {
	case "ordered":
		c.Ordered = true
	case "approx":
		c.Approx = true
	case "runs":
		c.Runs = true
	case "count":
		c.Count = true
	case "simple":
		c.Simple = true
	case "error":
		c.Fails = true
	case "data":
		c.Data += strings.ReplaceAll(rest, `\t`, "\t") + "\n"
	case "params":
		for p := range strings.SplitSeq(rest, "|") {
			if p = strings.TrimSpace(p); p == "NULL" {
				c.Params = append(c.Params, nil)
			} else {
				c.Params = append(c.Params, []byte(p))
			}
		}
	default:
		return fmt.Errorf("unknown directive %q", directive)
	}
	return nil
}
