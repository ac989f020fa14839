package twopc

// step is what the core wants done on a node.
type step uint8

const (
	// prepare makes a participant promise that it can commit.
	prepare step = iota + 1
	// commit writes the decision row into the decider's open transaction and ends it, which makes the decision.
	commit
	// commitPrepared and rollbackPrepared complete a participant as it was decided.
	commitPrepared
	rollbackPrepared
	// rollback ends a transaction that was not prepared; where there is none it does nothing.
	rollback
	// ask reads the decision.
	ask
	// recordAbort makes the decision to commit impossible.
	recordAbort
)

var stepNames = [...]string{
	prepare: "prepare", commit: "commit",
	commitPrepared: "commit prepared", rollbackPrepared: "rollback prepared", rollback: "rollback",
	ask: "ask", recordAbort: "record abort",
}

func (s step) String() string { return stepNames[s] }

// action is a step on one participant; the decider is participant 0.
type action struct {
	step step
	part int
}

// answer is how a step went, as far as who asked for it can know.
type answer uint8

const (
	// pending: no answer yet.
	pending answer = iota + 1
	yes
	// no: the node said that it did not do it.
	no
	// lost: nothing is known; it was done, or will be, or never.
	lost

	// Answers to ask.
	saysCommit
	saysAbort
	saysNothing

	// held is an answer to recordAbort: the decider is committing.
	held
)

var answerNames = [...]string{
	pending: "pending", yes: "yes", no: "no", lost: "lost",
	saysCommit: "commit", saysAbort: "abort", saysNothing: "nothing", held: "held",
}

func (a answer) String() string { return answerNames[a] }

// outcome is what became of a transaction, as far as a coordinator or a recovery knows.
type outcome uint8

const (
	undecided outcome = iota
	committed
	rolledBack
	inDoubt
)

var outcomeNames = [...]string{undecided: "undecided", committed: "committed", rolledBack: "rolled back", inDoubt: "in doubt"}

func (o outcome) String() string { return outcomeNames[o] }
