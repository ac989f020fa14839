// Package sqldiff is the oracle for SQL over several nodes: it runs the same statements on one PostgreSQL
// that has all rows and on clusters of several shapes, and any difference in what a client sees, or in the
// rows that are stored afterwards, is a bug.
//
// A statement that the cluster refuses with 0A000 is counted, not forgiven: the counts by category are
// written to docs/sql-support.md. A second plain PostgreSQL, with its rows in another order and other plans,
// goes through the same comparison as a control: a statement whose answer depends on such accidents has
// no place in the corpus, because a difference there would say nothing.
package sqldiff
