package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// TestCopyInExtendedProtocol sends COPY FROM with Parse, Bind and Execute, as libpq does for PQexecParams.
func TestCopyInExtendedProtocol(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE copyx_d (id bigint PRIMARY KEY, v text)", "CREATE TABLE copyx_r (id bigint PRIMARY KEY, v text)", "CREATE TABLE copyx_l (id bigint PRIMARY KEY, v text)",
		"SELECT create_distributed_table('copyx_d', 'id')", "SELECT create_reference_table('copyx_r')")
	for _, table := range []string{"copyx_d", "copyx_r", "copyx_l"} {
		t.Run(table, func(t *testing.T) {
			f := messages(t, shared().DSN(0)).Frontend
			copyRows := func(from, to int, first, last pgproto3.FrontendMessage) string {
				f.Send(&pgproto3.Parse{Query: "COPY " + table + " FROM STDIN"})
				f.Send(&pgproto3.Bind{})
				f.Send(&pgproto3.Describe{ObjectType: 'P'})
				f.Send(&pgproto3.Execute{})
				f.Send(first)
				if err := f.Flush(); err != nil {
					t.Fatal(err)
				}
				said := until(t, f, "CopyInResponse")
				for i := from; i < to; i++ {
					f.Send(&pgproto3.CopyData{Data: fmt.Appendf(nil, "%d\tv%d\n", i, i)})
				}
				f.Send(last)
				f.Send(&pgproto3.Sync{})
				if err := f.Flush(); err != nil {
					t.Fatal(err)
				}
				return said + " | " + until(t, f, "ReadyForQuery")
			}
			const begun = "ParseComplete BindComplete NoData CopyInResponse | "
			if got := copyRows(0, 500, &pgproto3.Sync{}, &pgproto3.CopyDone{}); got != begun+"CommandComplete COPY 500 ReadyForQuery I" {
				t.Error(got)
			}
			if got := copyRows(600, 700, &pgproto3.Sync{}, &pgproto3.CopyFail{Message: "enough"}); got != begun+"ErrorResponse 57014 ReadyForQuery I" {
				t.Error(got)
			}
			if got := copyRows(499, 510, &pgproto3.Flush{}, &pgproto3.CopyDone{}); got != begun+"ErrorResponse 23505 ReadyForQuery I" {
				t.Error(got)
			}
			if got := copyRows(500, 502, &pgproto3.Flush{}, &pgproto3.CopyDone{}); got != begun+"CommandComplete COPY 2 ReadyForQuery I" {
				t.Error(got)
			}
		})
	}
	checkPlaced(t, shared(), "copyx_d", "id", 502)
	checkReference(t, shared(), "copyx_r", 502)
	checkLocal(t, shared(), "copyx_l", 502)
}

// until reads messages up to one of a kind and names them.
func until(t *testing.T, f *pgproto3.Frontend, last string) string {
	t.Helper()
	var said []string
	for {
		msg, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(fmt.Sprintf("%T", msg), "*pgproto3.")
		switch m := msg.(type) {
		case *pgproto3.CommandComplete:
			said = append(said, name, string(m.CommandTag))
		case *pgproto3.ErrorResponse:
			said = append(said, name, m.Code)
		case *pgproto3.ReadyForQuery:
			said = append(said, name, string(m.TxStatus))
		case *pgproto3.ParameterStatus, *pgproto3.NoticeResponse:
		default:
			said = append(said, name)
		}
		if name == last {
			return strings.Join(said, " ")
		}
		if name == "ErrorResponse" && last == "CopyInResponse" {
			t.Fatalf("%+v", msg)
		}
	}
}
