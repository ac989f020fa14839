// Package analyze turns SQL text into statements: PostgreSQL's own grammar reads the text, and
// each statement is put into the class that decides how a router treats it. It knows no schema.
package analyze

import (
	"errors"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"github.com/pganalyze/pg_query_go/v6/parser"
)

// Class is what kind of work a statement is for a router.
type Class uint8

// The classes. Everything that is not listed in classify is DDL.
const (
	Query Class = iota // SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES, TABLE
	Explain
	Begin
	Commit
	Rollback
	Savepoint
	Release
	RollbackTo
	PrepareTransaction
	FinishPrepared
	Set
	Show
	Discard
	Prepare
	Execute
	Deallocate
	Declare
	Fetch
	CloseCursor
	Listen // LISTEN, UNLISTEN
	Notify
	Copy
	Lock
	Call
	Do
	Truncate
	CreateAs // CREATE TABLE AS, SELECT INTO, CREATE MATERIALIZED VIEW
	Refresh
	SetConstraints
	DDL      // on every node, in a transaction
	NodeWise // on every node, one after the other, outside a transaction
	Load
)

var classNames = [...]string{
	"query", "explain", "begin", "commit", "rollback", "savepoint", "release", "rollback to",
	"prepare transaction", "finish prepared", "set", "show", "discard", "prepare", "execute", "deallocate",
	"declare", "fetch", "close", "listen", "notify", "copy", "lock", "call", "do", "truncate", "create as",
	"refresh", "set constraints", "ddl", "node-wise", "load",
}

func (c Class) String() string { return classNames[c] }

// Statement is one parsed statement of a text.
type Statement struct {
	Text   string // the statement's own bytes, without the semicolon
	Offset int    // where Text begins in what the client sent
	Tree   *pg.Node
	Class  Class
}

// ErrSyntax is a text that the grammar does not accept; the node's own parser has the last word.
var ErrSyntax = errors.New("syntax error")

// Parse reads all statements of a text. An empty text has none.
func Parse(sql string) ([]*Statement, error) {
	tree, err := pg.Parse(sql)
	if err != nil {
		var perr *parser.Error
		if errors.As(err, &perr) {
			return nil, errors.Join(ErrSyntax, perr)
		}
		return nil, errors.Join(ErrSyntax, err)
	}
	out := make([]*Statement, 0, len(tree.Stmts))
	for _, raw := range tree.Stmts {
		if raw.Stmt == nil {
			continue
		}
		start := int(raw.StmtLocation)
		end := len(sql)
		if raw.StmtLen > 0 {
			end = start + int(raw.StmtLen)
		}
		text := sql[start:end]
		trimmed := strings.TrimLeft(text, " \t\r\n\f\v")
		start += len(text) - len(trimmed)
		out = append(out, &Statement{
			Text:   trimmed,
			Offset: start,
			Tree:   raw.Stmt,
			Class:  classify(raw.Stmt),
		})
	}
	return out, nil
}

func classify(n *pg.Node) Class {
	switch s := n.Node.(type) {
	case *pg.Node_SelectStmt:
		if s.SelectStmt.IntoClause != nil {
			return CreateAs
		}
		return Query
	case *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		return Query
	case *pg.Node_ExplainStmt:
		return Explain
	case *pg.Node_TransactionStmt:
		return classifyTransaction(s.TransactionStmt)
	case *pg.Node_VariableSetStmt:
		return Set
	case *pg.Node_VariableShowStmt:
		return Show
	case *pg.Node_DiscardStmt:
		return Discard
	case *pg.Node_PrepareStmt:
		return Prepare
	case *pg.Node_ExecuteStmt:
		return Execute
	case *pg.Node_DeallocateStmt:
		return Deallocate
	case *pg.Node_DeclareCursorStmt:
		return Declare
	case *pg.Node_FetchStmt:
		return Fetch
	case *pg.Node_ClosePortalStmt:
		return CloseCursor
	case *pg.Node_ListenStmt, *pg.Node_UnlistenStmt:
		return Listen
	case *pg.Node_NotifyStmt:
		return Notify
	case *pg.Node_CopyStmt:
		return Copy
	case *pg.Node_LockStmt:
		return Lock
	case *pg.Node_CallStmt:
		return Call
	case *pg.Node_DoStmt:
		return Do
	case *pg.Node_TruncateStmt:
		return Truncate
	case *pg.Node_CreateTableAsStmt:
		return CreateAs
	case *pg.Node_RefreshMatViewStmt:
		return Refresh
	case *pg.Node_ConstraintsSetStmt:
		return SetConstraints
	case *pg.Node_LoadStmt:
		return Load
	}
	if nodeWise(n) {
		return NodeWise
	}
	return DDL
}

func classifyTransaction(t *pg.TransactionStmt) Class {
	switch t.Kind {
	case pg.TransactionStmtKind_TRANS_STMT_BEGIN, pg.TransactionStmtKind_TRANS_STMT_START:
		return Begin
	case pg.TransactionStmtKind_TRANS_STMT_COMMIT:
		return Commit
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK:
		return Rollback
	case pg.TransactionStmtKind_TRANS_STMT_SAVEPOINT:
		return Savepoint
	case pg.TransactionStmtKind_TRANS_STMT_RELEASE:
		return Release
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:
		return RollbackTo
	case pg.TransactionStmtKind_TRANS_STMT_PREPARE:
		return PrepareTransaction
	default:
		return FinishPrepared
	}
}

// nodeWise reports statements that PostgreSQL refuses inside a transaction block.
func nodeWise(n *pg.Node) bool {
	switch s := n.Node.(type) {
	case *pg.Node_VacuumStmt:
		return true // ANALYZE alone may run in a transaction, but gains nothing from it
	case *pg.Node_IndexStmt:
		return s.IndexStmt.Concurrent
	case *pg.Node_DropStmt:
		return s.DropStmt.Concurrent
	case *pg.Node_ReindexStmt:
		kind := s.ReindexStmt.Kind
		return hasOption(s.ReindexStmt.Params, "concurrently") ||
			kind == pg.ReindexObjectType_REINDEX_OBJECT_SCHEMA ||
			kind == pg.ReindexObjectType_REINDEX_OBJECT_SYSTEM ||
			kind == pg.ReindexObjectType_REINDEX_OBJECT_DATABASE
	case *pg.Node_ClusterStmt:
		return s.ClusterStmt.Relation == nil
	case *pg.Node_CreatedbStmt, *pg.Node_DropdbStmt, *pg.Node_CreateTableSpaceStmt, *pg.Node_DropTableSpaceStmt,
		*pg.Node_AlterSystemStmt, *pg.Node_CheckPointStmt, *pg.Node_CreateSubscriptionStmt,
		*pg.Node_AlterSubscriptionStmt, *pg.Node_DropSubscriptionStmt:
		return true
	case *pg.Node_AlterDatabaseStmt:
		return hasOption(s.AlterDatabaseStmt.Options, "tablespace")
	case *pg.Node_AlterTableStmt:
		for _, c := range s.AlterTableStmt.Cmds {
			if p := c.GetAlterTableCmd().GetDef().GetPartitionCmd(); p != nil && p.Concurrent {
				return true
			}
		}
	}
	return false
}

func hasOption(opts []*pg.Node, name string) bool {
	for _, o := range opts {
		if o.GetDefElem().GetDefname() == name {
			return true
		}
	}
	return false
}
