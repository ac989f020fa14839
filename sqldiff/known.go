package sqldiff

import "regexp"

// knownDifference is a bug that has been reported and not fixed yet: `make sqldiff` fails because of it, the
// short test of every build does not. When it is fixed, its entry goes.
type knownDifference struct {
	about             string
	statement, reason *regexp.Regexp
}

// knownDifferences should be empty.
func knownDifferences() []knownDifference {
	known := func(about, statement, reason string) knownDifference {
		return knownDifference{about, regexp.MustCompile(statement), regexp.MustCompile(reason)}
	}
	return []knownDifference{
		known("Describe of a portal says text where the rows are binary", ``, `^column \d+ is described with format 0 instead of 1$`),
		known("RETURNING of a write to a reference table comes as text when binary was asked for", `(?is)^(insert into|update|delete from) (countries|products)\b.*\breturning\b`, `^other rows|described with format`),
		known("HAVING without GROUP BY and aggregates", `HAVING true`, `^SQLSTATE 42601 instead of success$`),
		known("IN with a subquery on another column than the key is run on each node", `referrer IN \(SELECT id FROM customers`, ``),
		known("DISTINCT ON keeps another row than the first in order", `^SELECT DISTINCT ON`, ``),
		known("WHERE CURRENT OF does not find the cursor", `WHERE CURRENT OF`, `^SQLSTATE (34000|24000) instead of success$`),
		known("a write on all nodes looks for a temporary table there", `FROM mine`, `^SQLSTATE 42P01 instead of success$`),
		known("a write on all nodes looks for a recursive CTE as a table", `^WITH RECURSIVE`, `^SQLSTATE 42P01 instead of success$`),
		known("a subquery in RETURNING sees one node", `RETURNING \(SELECT`, ``),
		known("a write with IN (SELECT ... GROUP BY) off the key groups on each node", `^UPDATE .* IN \(SELECT customer_id FROM orders GROUP BY`, ``),
		known("the outer query of a CTE that writes runs on each node", `^WITH \w+ AS \(DELETE`, ``),
	}
}

// known says what a difference is already known as.
func (o *Outcome) known() string {
	for _, k := range knownDifferences() {
		if k.statement.MatchString(o.Step) && k.reason.MatchString(o.Reason) {
			return k.about
		}
	}
	return ""
}
