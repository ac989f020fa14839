package sqldiff

import (
	"context"
	"fmt"
	"strings"
)

// entryCases are the transactions of the mix, always the same.
func entryCases(n int) []*Case {
	d := newDice(11)
	var cases []*Case
	for i := range n {
		c := &Case{Category: "order entry", File: "order entry", Line: i + 1, Fails: true}
		switch n := d.IntN(100); {
		case n < 45:
			c.Steps = newOrder(d)
		case n < 80:
			c.Steps = payment(d)
		case n < 88:
			c.Steps = orderStatus(d)
		case n < 94:
			c.Steps = delivery(d)
		default:
			c.Steps = stockLevel(d)
		}
		c.Steps = append(append([]string{"BEGIN"}, c.Steps...), "COMMIT")
		cases = append(cases, c)
	}
	return append(cases, &Case{Category: "order entry", File: "order entry", Line: n + 1, Steps: invariants})
}

// mix runs the transactions on the oracle and on a target: every statement must answer the same, and
// afterwards the books must balance on both. It then brings the tables back.
func (r *run) mix(ctx context.Context, t *Target) error {
	if len(r.entries) == 0 {
		return nil
	}
	last := len(r.entries) - 1
	for _, c := range r.entries[:last] {
		o, err := r.transaction(ctx, t, c)
		if err != nil {
			return err
		}
		r.add(t, o)
	}
	return r.settle(ctx, t, r.entries[last])
}

// transaction runs a case on both sides. A refusal rolls back on both, so that they stay alike.
func (r *run) transaction(ctx context.Context, t *Target, c *Case) (Outcome, error) {
	out := Outcome{Case: c, Target: t.Name, Mode: Simple}
	for _, step := range c.Steps {
		want, got := r.oracle.target.client.run(ctx, c, step, Simple), t.client.run(ctx, c, step, Simple)
		if want.Broken != "" {
			return out, fmt.Errorf("PostgreSQL lost the connection at %s: %s", step, want.Broken)
		}
		if got.refused(want) {
			out.Verdict, out.Reason, out.Step = Refused, got.Message, step
			break
		}
		h := how{arms: setOperation.MatchString(step)}
		h.order, h.ordered = orderOf(step, want.Columns)
		if difference := compare(want, got, h); difference != "" {
			out.Verdict, out.Reason, out.Step, out.Want, out.Got = Different, difference, step, want.String(), got.String()
			break
		}
	}
	if err := r.oracle.target.client.reset(ctx); err != nil {
		return out, err
	}
	return out, t.client.reset(ctx)
}

// settle compares what both sides have in the end, checks the books of each node, and restores.
func (r *run) settle(ctx context.Context, t *Target, final *Case) error {
	var tables []string
	for _, name := range tableNames() {
		if strings.HasPrefix(name, "entry.") {
			tables = append(tables, name)
		}
	}
	want, wantEach, _, err := r.oracle.target.contents(ctx, tables)
	if err != nil {
		return err
	}
	got, each, wrong, err := t.contents(ctx, tables)
	if err != nil {
		return err
	}
	if wrong == "" {
		wrong = differentTable(want, got)
	}
	o := Outcome{Case: final, Target: t.Name}
	if wrong != "" {
		o.Verdict, o.Reason, o.Want, o.Got = Different, wrong, fmt.Sprint(want), fmt.Sprint(got)
	}
	if err := checkBooks(ctx, t, &o); err != nil {
		return err
	}
	r.add(t, o)
	if err := r.oracle.target.restore(ctx, wantEach); err != nil {
		return err
	}
	return t.restore(ctx, each)
}

// checkBooks asks each node: warehouses are whole on their node, so its books must balance. Where a layout puts
// tables apart, the comparison of contents speaks for them.
func checkBooks(ctx context.Context, t *Target, o *Outcome) error {
	if _, together := t.placed["entry.warehouse"]; len(t.nodes) > 1 && !together {
		return nil
	}
	for _, sql := range invariants {
		for _, n := range t.nodes {
			rows, err := n.direct.rows(ctx, sql)
			if err != nil {
				return err
			}
			if len(rows) > 0 {
				o.Verdict, o.Reason, o.Step = Different, fmt.Sprintf("the books of %s do not balance: %q", n.name, rows[0]), sql
			}
		}
	}
	return nil
}

// invariants return rows only when something is wrong.
var invariants = []string{
	`SELECT w_id, w_ytd, sum(d_ytd) FROM entry.warehouse JOIN entry.district ON d_w_id = w_id GROUP BY w_id, w_ytd HAVING w_ytd <> sum(d_ytd)`,
	`SELECT w_id, w_ytd FROM entry.warehouse WHERE w_ytd <> (SELECT coalesce(sum(h_amount), 0) FROM entry.history WHERE h_w_id = w_id)`,
	`SELECT d_w_id, d_id, d_next_o_id FROM entry.district WHERE d_next_o_id - 1 <> (SELECT coalesce(max(o_id), 0) FROM entry.orders WHERE o_w_id = d_w_id AND o_d_id = d_id)`,
	`SELECT o_w_id, o_d_id, o_id FROM entry.orders WHERE o_ol_cnt <> (SELECT count(*) FROM entry.order_line WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id)`,
	`SELECT o_w_id, o_d_id, o_id FROM entry.orders WHERE (o_carrier_id IS NULL) <> EXISTS (SELECT FROM entry.new_order WHERE no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id)`,
	`SELECT c_w_id, c_d_id, c_id FROM entry.customer WHERE c_balance + c_ytd_payment <> 0 AND NOT EXISTS (SELECT FROM entry.orders WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND o_carrier_id IS NOT NULL)`,
}

func newOrder(d dice) []string {
	w, district, c := 1+d.IntN(entryWarehouses), 1+d.IntN(entryDistricts), 1+d.IntN(entryCustomers)
	n := 2 + d.IntN(4)
	next := fmt.Sprintf("(SELECT d_next_o_id - 1 FROM entry.district WHERE d_w_id = %d AND d_id = %d)", w, district)
	steps := []string{
		fmt.Sprintf("SELECT w_tax, d_tax, d_next_o_id, c_discount FROM entry.warehouse JOIN entry.district ON d_w_id = w_id JOIN entry.customer ON c_w_id = w_id AND c_d_id = d_id WHERE w_id = %d AND d_id = %d AND c_id = %d", w, district, c),
		fmt.Sprintf("UPDATE entry.district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = %d AND d_id = %d RETURNING d_next_o_id", w, district),
		fmt.Sprintf("INSERT INTO entry.orders SELECT %d, %d, d_next_o_id - 1, %d, NULL, %d FROM entry.district WHERE d_w_id = %d AND d_id = %d", w, district, c, n, w, district),
		fmt.Sprintf("INSERT INTO entry.new_order SELECT %d, %d, d_next_o_id - 1 FROM entry.district WHERE d_w_id = %d AND d_id = %d", w, district, w, district),
	}
	items := d.Perm(entryItems)
	for line := range n {
		item, supply, quantity := items[line]+1, w, 1+d.IntN(9)
		if d.IntN(5) == 0 { // from another warehouse: the transaction is on two nodes
			supply = 1 + d.IntN(entryWarehouses)
		}
		remote := 0
		if supply != w {
			remote = 1
		}
		steps = append(steps,
			fmt.Sprintf("UPDATE entry.stock SET s_quantity = CASE WHEN s_quantity >= %[1]d + 10 THEN s_quantity - %[1]d ELSE s_quantity - %[1]d + 91 END, s_ytd = s_ytd + %[1]d, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + %[2]d WHERE s_w_id = %[3]d AND s_i_id = %[4]d RETURNING s_quantity", quantity, remote, supply, item),
			fmt.Sprintf("INSERT INTO entry.order_line SELECT %d, %d, %s, %d, i_id, %d, %d, i_price * %d, false FROM entry.item WHERE i_id = %d", w, district, next, line+1, supply, quantity, quantity, item))
	}
	return steps
}

func payment(d dice) []string {
	w, district, c := 1+d.IntN(entryWarehouses), 1+d.IntN(entryDistricts), 1+d.IntN(entryCustomers)
	customerWarehouse, amount := w, d.between(1, 500)
	if d.IntN(4) == 0 {
		customerWarehouse = 1 + d.IntN(entryWarehouses)
	}
	return []string{
		fmt.Sprintf("UPDATE entry.warehouse SET w_ytd = w_ytd + %s WHERE w_id = %d RETURNING w_name", amount, w),
		fmt.Sprintf("UPDATE entry.district SET d_ytd = d_ytd + %s WHERE d_w_id = %d AND d_id = %d", amount, w, district),
		fmt.Sprintf("SELECT c_id, c_last FROM entry.customer WHERE c_w_id = %d AND c_d_id = %d AND c_last = 'BAR' ORDER BY c_id", customerWarehouse, district),
		fmt.Sprintf("UPDATE entry.customer SET c_balance = c_balance - %[1]s, c_ytd_payment = c_ytd_payment + %[1]s, c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = %[2]d AND c_d_id = %[3]d AND c_id = %[4]d RETURNING c_balance", amount, customerWarehouse, district, c),
		fmt.Sprintf("INSERT INTO entry.history VALUES (%d, %d, %d, %d, %d, %s)", w, district, customerWarehouse, district, c, amount),
	}
}

func orderStatus(d dice) []string {
	w, district, c := 1+d.IntN(entryWarehouses), 1+d.IntN(entryDistricts), 1+d.IntN(entryCustomers)
	return []string{
		fmt.Sprintf("SELECT c_balance, c_last FROM entry.customer WHERE c_w_id = %d AND c_d_id = %d AND c_id = %d", w, district, c),
		fmt.Sprintf("SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount FROM entry.order_line WHERE ol_w_id = %[1]d AND ol_d_id = %[2]d AND ol_o_id = (SELECT max(o_id) FROM entry.orders WHERE o_w_id = %[1]d AND o_d_id = %[2]d AND o_c_id = %[3]d)", w, district, c),
	}
}

// delivery hands out the oldest order of each district of a warehouse.
func delivery(d dice) []string {
	w, carrier := 1+d.IntN(entryWarehouses), 1+d.IntN(10)
	var steps []string
	for district := 1; district <= entryDistricts; district++ {
		oldest := fmt.Sprintf("(SELECT min(no_o_id) FROM entry.new_order WHERE no_w_id = %d AND no_d_id = %d)", w, district)
		steps = append(steps,
			fmt.Sprintf("UPDATE entry.orders SET o_carrier_id = %[1]d WHERE o_w_id = %[2]d AND o_d_id = %[3]d AND o_id = %[4]s RETURNING o_id, o_c_id", carrier, w, district, oldest),
			fmt.Sprintf("UPDATE entry.order_line SET ol_delivered = true WHERE ol_w_id = %[1]d AND ol_d_id = %[2]d AND ol_o_id = %[3]s", w, district, oldest),
			fmt.Sprintf("UPDATE entry.customer SET c_balance = c_balance + (SELECT sum(ol_amount) FROM entry.order_line WHERE ol_w_id = %[1]d AND ol_d_id = %[2]d AND ol_o_id = %[3]s) WHERE c_w_id = %[1]d AND c_d_id = %[2]d AND c_id = (SELECT o_c_id FROM entry.orders WHERE o_w_id = %[1]d AND o_d_id = %[2]d AND o_id = %[3]s)", w, district, oldest),
			fmt.Sprintf("DELETE FROM entry.new_order WHERE no_w_id = %[1]d AND no_d_id = %[2]d AND no_o_id = %[3]s", w, district, oldest))
	}
	return steps
}

func stockLevel(d dice) []string {
	w, district := 1+d.IntN(entryWarehouses), 1+d.IntN(entryDistricts)
	return []string{
		fmt.Sprintf("SELECT count(DISTINCT s_i_id) FROM entry.order_line JOIN entry.stock ON s_i_id = ol_i_id AND s_w_id = ol_w_id JOIN entry.district ON d_w_id = ol_w_id AND d_id = ol_d_id WHERE ol_w_id = %d AND ol_d_id = %d AND ol_o_id >= d_next_o_id - 20 AND s_quantity < 50", w, district),
		"SELECT s_i_id, sum(s_quantity), sum(s_ytd) FROM entry.stock GROUP BY s_i_id HAVING sum(s_ytd) > 10 ORDER BY s_i_id",
		"SELECT sum(c_balance), sum(c_ytd_payment), count(*) FROM entry.customer",
	}
}
