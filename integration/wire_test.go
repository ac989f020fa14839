package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgshoal/pgshoal/shardtest"
)

// TestMessagesAsPostgres sends scripts of messages to a plain PostgreSQL and through a router and compares the answers, message by
// message: with a table on the home node, and with one on all nodes.
func TestMessagesAsPostgres(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	setup := []string{
		"CREATE TABLE wire_l (k int PRIMARY KEY, v text)", "CREATE TABLE wire_d (k int PRIMARY KEY, v text)",
		"INSERT INTO wire_l SELECT g, 'v' || g FROM generate_series(1, 20) g", "INSERT INTO wire_d SELECT g, 'v' || g FROM generate_series(1, 20) g",
	}
	run(t, connect(t, plain.DSN("", "")), setup...)
	run(t, client(t), append(setup, "SELECT create_distributed_table('wire_d', 'k')")...)
	text, err := os.ReadFile("testdata/wire/scripts.txt")
	if err != nil {
		t.Fatal(err)
	}
	for script := range strings.SplitSeq(string(text), "\n\n") {
		name, lines, _ := strings.Cut(strings.Trim(script, "\n"), "\n")
		for _, table := range []string{"wire_l", "wire_d"} {
			t.Run(strings.TrimPrefix(name, "# ")+" "+table, func(t *testing.T) {
				lines := strings.ReplaceAll(lines, "#", table)
				want, got := settled(wireAnswers(t, plain.DSN("", ""), lines)), settled(wireAnswers(t, shared().DSN(0), lines))
				if got != want {
					t.Errorf("%s\nthe answers differ (- PostgreSQL, + pgshoal):\n%s", lines, difference(want, got))
				}
			})
		}
	}
}

// wireAnswers sends the messages of a script, each a line, without waiting for answers, and returns these, a line each. The line
// "..." waits for the answers so far.
func wireAnswers(t *testing.T, dsn, script string) string {
	t.Helper()
	hijacked := messages(t, dsn)
	_ = hijacked.Conn.SetDeadline(time.Now().Add(20 * time.Second))
	f := hijacked.Frontend
	var said strings.Builder
	for line := range strings.SplitSeq(script, "\n") {
		if word, until, ok := strings.Cut(line, " "); ok && word == "..." {
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
			if !hear(t, f, &said, until) {
				return said.String()
			}
			continue
		}
		f.Send(wireMessage(t, line))
	}
	f.Send(&pgproto3.Query{String: "SELECT 'the end'"})
	_ = f.Flush() // the server may have hung up
	hear(t, f, &said, "the end")
	return said.String()
}

// settled puts the changes of parameters in order, at the end of each answer: PostgreSQL promises none.
func settled(answers string) string {
	var out, changes []string
	for line := range strings.SplitSeq(answers, "\n") {
		if strings.HasPrefix(line, "ParameterStatus ") {
			changes = append(changes, line)
			continue
		}
		if strings.HasPrefix(line, "ReadyForQuery ") {
			slices.Sort(changes)
			out = append(out, changes...)
			changes = nil
		}
		out = append(out, line)
	}
	return strings.Join(append(out, changes...), "\n")
}

// hear notes answers up to one that contains a word; false when the server hangs up first.
func hear(t *testing.T, f *pgproto3.Frontend, said *strings.Builder, word string) bool {
	t.Helper()
	for {
		msg, err := f.Receive()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), err != nil && strings.Contains(err.Error(), "reset by peer"):
			said.WriteString("hung up\n")
			return false
		case err != nil:
			fmt.Fprintf(said, "%v\n", err)
			t.Errorf("waited for %q: %v", word, err)
			return false
		}
		line := wireLine(msg)
		said.WriteString(line + "\n")
		if strings.Contains(line, word) {
			return true
		}
	}
}

// wireMessage reads a line: the letter of the message and its fields, separated by |.
func wireMessage(t *testing.T, line string) pgproto3.FrontendMessage {
	t.Helper()
	kind, rest, _ := strings.Cut(line, " ")
	fields := append(strings.Split(rest, "|"), "", "", "")
	switch kind {
	case "Q":
		return &pgproto3.Query{String: strings.ReplaceAll(rest, `\n`, "\n")}
	case "P":
		return &pgproto3.Parse{Name: fields[0], Query: fields[1], ParameterOIDs: oidList(fields[2])}
	case "B":
		b := &pgproto3.Bind{DestinationPortal: fields[0], PreparedStatement: fields[1]}
		for _, v := range strings.Split(rest, "|")[min(2, strings.Count(rest, "|")+1):] {
			b.Parameters = append(b.Parameters, []byte(v))
		}
		return b
	case "DS", "DP":
		return &pgproto3.Describe{ObjectType: kind[1], Name: rest}
	case "CS", "CP":
		return &pgproto3.Close{ObjectType: kind[1], Name: rest}
	case "E":
		rows, _ := strconv.Atoi(fields[1])
		return &pgproto3.Execute{Portal: fields[0], MaxRows: uint32(rows)}
	case "H":
		return &pgproto3.Flush{}
	case "S":
		return &pgproto3.Sync{}
	case "d":
		return &pgproto3.CopyData{Data: []byte(strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(rest))}
	case "c":
		return &pgproto3.CopyDone{}
	case "f":
		return &pgproto3.CopyFail{Message: rest}
	case "F":
		oid, _ := strconv.Atoi(fields[0])
		call := &pgproto3.FunctionCall{Function: uint32(oid)}
		if fields[1] != "" {
			call.Arguments = [][]byte{[]byte(fields[1])}
		}
		return call
	}
	t.Fatalf("what is %q?", line)
	return nil
}

func oidList(text string) (oids []uint32) {
	for word := range strings.FieldsSeq(text) {
		oid, _ := strconv.Atoi(word)
		oids = append(oids, uint32(oid))
	}
	return oids
}

// wireLine is an answer in words, without what must differ on two servers.
func wireLine(msg pgproto3.BackendMessage) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", msg), "*pgproto3.")
	switch m := msg.(type) {
	case *pgproto3.CommandComplete:
		return name + " " + string(m.CommandTag)
	case *pgproto3.ErrorResponse:
		return wireError(name, m)
	case *pgproto3.NoticeResponse:
		return wireError(name, (*pgproto3.ErrorResponse)(m))
	case *pgproto3.ReadyForQuery:
		return name + " " + string(m.TxStatus)
	case *pgproto3.ParameterStatus:
		return name + " " + m.Name + "=" + m.Value
	case *pgproto3.DataRow:
		return name + " " + string(bytes.Join(m.Values, []byte("|")))
	case *pgproto3.CopyData:
		return name + " " + strconv.Quote(string(m.Data))
	case *pgproto3.ParameterDescription:
		return fmt.Sprint(name, " ", m.ParameterOIDs)
	case *pgproto3.RowDescription:
		for _, f := range m.Fields {
			name += fmt.Sprintf(" %s:%d:%d:%d:%d", f.Name, f.DataTypeOID, f.DataTypeSize, f.TypeModifier, f.Format)
		}
	case *pgproto3.CopyInResponse:
		return fmt.Sprint(name, m.OverallFormat, m.ColumnFormatCodes)
	case *pgproto3.CopyOutResponse:
		return fmt.Sprint(name, m.OverallFormat, m.ColumnFormatCodes)
	case *pgproto3.FunctionCallResponse:
		return name + " " + string(m.Result)
	case *pgproto3.NotificationResponse:
		return name + " " + m.Channel + " " + m.Payload
	}
	return name
}

func wireError(name string, e *pgproto3.ErrorResponse) string {
	return fmt.Sprintf("%s %s %s %s detail %q hint %q position %d", name, e.Severity, e.Code, e.Message, e.Detail, e.Hint, e.Position)
}
