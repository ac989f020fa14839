package plan_test

import "strings"

// focused writes a statement that goes wrong when one rule of the planner is wrong: a restriction
// that must not move, a name that means something else, a NULL that counts.
func (g *generator) focused() string {
	templates := []string{
		"SELECT * FROM (SELECT t.k, t.v FROM T t ORDER BY t.v, t.k LIMIT 2) x WHERE x.k = L",
		"SELECT * FROM (SELECT t.k, t.v FROM T t ORDER BY t.v DESC, t.k OFFSET 2) x WHERE x.k = L",
		"SELECT * FROM (SELECT t.k, t.v, count(*) OVER () FROM T t) x WHERE x.k = L",
		"SELECT * FROM (SELECT t.k, t.v, rank() OVER (PARTITION BY t.v ORDER BY t.k) FROM T t) x WHERE x.k = L",
		"SELECT * FROM (SELECT t.k, t.v, row_number() OVER (ORDER BY t.v, t.k, t.w) FROM T t) x WHERE x.k = L",
		"SELECT * FROM (SELECT DISTINCT ON (t.v) t.v, t.k FROM T t ORDER BY t.v, t.k) x WHERE x.k = L",
		"SELECT * FROM (SELECT DISTINCT t.v, t.k FROM T t) x WHERE x.k = L",
		"SELECT * FROM (SELECT max(t.k) AS k, t.v FROM T t GROUP BY t.v) x WHERE x.k = L",
		"SELECT * FROM (SELECT t.k, count(*) AS v FROM T t GROUP BY t.k, t.v) x WHERE x.k = L",
		"SELECT * FROM (SELECT t.k AS a, t.v AS k, count(*) FROM T t GROUP BY 1, 2) x WHERE x.k = L",
		"SELECT * FROM (SELECT t.k, count(*) AS v FROM T t GROUP BY GROUPING SETS ((t.k), ())) x WHERE x.k = L",
		"WITH q AS (SELECT * FROM T) SELECT x.k, y.k FROM q x JOIN q y ON x.v = y.v WHERE x.k = L",
		"WITH q AS (SELECT * FROM T) SELECT x.k, y.k FROM q x JOIN q y ON x.k = y.k WHERE x.k = L",
		"WITH q AS (SELECT * FROM T WHERE k = L) SELECT x.k, y.k FROM q x JOIN U y ON x.k = y.k",
		"WITH RECURSIVE q AS (SELECT k, v FROM T WHERE k = L UNION SELECT u.k, u.v FROM U u JOIN q ON u.k = q.v) SELECT * FROM q",
		"WITH RECURSIVE q AS (SELECT k, v FROM T WHERE k = L UNION SELECT u.k, u.v FROM U u JOIN q ON u.k = L AND u.v = q.v) SELECT * FROM q",
		"WITH RECURSIVE q AS (SELECT * FROM U), U AS (SELECT v AS k, k AS v FROM T WHERE v = L) SELECT * FROM q WHERE k = L",
		"SELECT x.k, x.k NOT IN (SELECT s.k FROM (SELECT t.k FROM r LEFT JOIN T t ON t.v = r.k) s) FROM U x WHERE x.k = L",
		"SELECT x.k, x.k NOT IN (SELECT t.k FROM T t WHERE t.v = x.v) FROM U x WHERE x.k = L",
		"SELECT r.v, x.k IN (SELECT t.k FROM T t) FROM r LEFT JOIN U x ON x.k = L AND x.v = r.v",
		"SELECT r.v, (SELECT count(*) FROM T t WHERE t.k = x.k) FROM r LEFT JOIN U x ON x.k = L AND x.v = r.v",
		"SELECT * FROM r x WHERE EXISTS (SELECT FROM U x, (SELECT * FROM T t WHERE t.k = x.k) y WHERE x.k = L AND y.v = x.v)",
		"SELECT * FROM r x WHERE EXISTS (SELECT FROM (U x JOIN r z ON x.k = L) AS j JOIN T t ON t.k = x.k)",
		"SELECT * FROM r x WHERE EXISTS (SELECT FROM U x, r y JOIN T t ON t.k = x.k WHERE x.k = L)",
		"SELECT * FROM U x, LATERAL (SELECT * FROM T t WHERE t.k = x.k ORDER BY t.v, t.w LIMIT 1) y WHERE x.k = L",
		"SELECT * FROM (SELECT k, v FROM T UNION ALL SELECT k, v FROM U ORDER BY v, k LIMIT 2) x WHERE x.k = L",
		"SELECT * FROM (SELECT k, v FROM T EXCEPT SELECT v, k FROM U) x WHERE x.k = L",
		"SELECT * FROM (SELECT k, v FROM T EXCEPT SELECT k, v FROM U) x WHERE x.k = L",
		"SELECT * FROM T x FULL JOIN U y USING (k) WHERE k = L",
		"SELECT * FROM T x FULL JOIN U y USING (k) WHERE x.k = L",
		"SELECT * FROM T x RIGHT JOIN U y USING (k) WHERE k = L",
		"SELECT k, x.v FROM (T x LEFT JOIN r y USING (k)) RIGHT JOIN U z USING (k) WHERE k = L",
		"SELECT * FROM (T x LEFT JOIN U y USING (k)) AS j(v, k) WHERE j.k = L",
		"SELECT * FROM (T x LEFT JOIN U y USING (k)) AS j(k, v) WHERE j.k = L",
		"SELECT * FROM T x LEFT JOIN U y ON x.k = y.k AND x.k = L",
		"SELECT * FROM T x LEFT JOIN U y ON y.k = L WHERE x.k = y.k",
		"SELECT * FROM (T x LEFT JOIN U y ON x.k = y.k) LEFT JOIN r z ON z.k = y.k AND y.k = L WHERE x.k = L",
		"SELECT * FROM r z LEFT JOIN (T x LEFT JOIN U y ON x.k = y.k) ON x.k = L",
		"SELECT * FROM r z LEFT JOIN (T x LEFT JOIN U y ON x.k = y.k) ON y.k = L AND y.v = z.v",
		"SELECT * FROM T AS x(v, k) WHERE x.k = L",
		"SELECT * FROM vb x WHERE x.v = L", "SELECT * FROM vl x WHERE x.v = L", "SELECT * FROM vu x JOIN T t ON t.k = x.k WHERE x.k = L",
		"SELECT * FROM (VALUES (L, 1), (NULL, 2)) s(k, v) LEFT JOIN T t ON t.k = s.k",
		"SELECT * FROM T t JOIN (SELECT L AS k) s ON t.k = s.k OR t.v = s.k",
		"SELECT * FROM T t WHERE (t.k, t.v) IN ((L, M), (M, L))", "SELECT * FROM T t WHERE t.k = L OR t.k = M AND t.v = L",
		"SELECT * FROM T t WHERE t.k = L AND t.v IN (SELECT u.k FROM U u WHERE u.k = M)",
		"SELECT * FROM T t WHERE t.k = ANY (SELECT u.k FROM U u WHERE u.k = M) AND NOT EXISTS (SELECT FROM U u WHERE u.k = t.k AND u.v = M)",
	}
	return g.instantiate(templates)
}

// focusedWrite is focused for statements that change rows.
func (g *generator) focusedWrite() string {
	return g.instantiate([]string{
		"WITH w AS (UPDATE b AS t SET v = M WHERE t.k = L AND t.v = L RETURNING v) INSERT INTO a(k) SELECT v FROM w",
		"WITH w AS (UPDATE b AS t SET k = M WHERE t.k = L RETURNING k, v) INSERT INTO a(k, v) SELECT k, v FROM w",
		"WITH w AS (DELETE FROM b AS t WHERE t.k = L RETURNING k, v) INSERT INTO a(k, v) SELECT k, v FROM w",
		"WITH w AS (DELETE FROM b AS t WHERE t.k = L AND t.v = M RETURNING *) INSERT INTO a(v, k) SELECT k, v FROM w",
		"WITH w AS (INSERT INTO b(k, v) VALUES (L, M) RETURNING *) INSERT INTO a(k, v) SELECT k, v FROM w",
		"MERGE INTO a t USING (SELECT DISTINCT k, v FROM b WHERE k = L) s ON t.k = s.k AND t.v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.v, s.k)",
		"MERGE INTO a t USING (SELECT DISTINCT k, v FROM b WHERE k = L) s ON t.k = s.k AND t.v = s.v WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)",
		"MERGE INTO a t USING (VALUES (L, M)) s(k, v) ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)",
		"MERGE INTO a t USING (VALUES (L, M)) s(k, v) ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.v, s.k)",
		"INSERT INTO a(k, v) SELECT s.v, s.k FROM b s WHERE s.k = L", "INSERT INTO a(k, v) SELECT s.v, s.k FROM b s WHERE s.k = L AND s.v = M",
		"INSERT INTO a(v, k) SELECT s.v, s.k FROM b s WHERE s.k = L", "INSERT INTO a SELECT * FROM b s JOIN r USING (k) WHERE s.k = L",
		"UPDATE a AS t SET v = M FROM b s WHERE s.v = t.v AND s.k = L", "UPDATE a AS t SET v = M FROM b s WHERE s.k = t.k AND s.k = L",
		"UPDATE a AS t SET v = M WHERE t.k = L AND t.v NOT IN (SELECT v FROM b WHERE b.k = t.k)",
		"DELETE FROM a AS t USING a s WHERE s.k = t.k AND s.v = L AND t.k = M", "DELETE FROM a AS t USING b s LEFT JOIN a u ON u.k = s.k WHERE u.k = L AND t.k = s.k",
		"INSERT INTO a(k, v) SELECT k, 1 FROM (SELECT * FROM b WHERE k = L) x RIGHT JOIN r USING (k)",
		"INSERT INTO a(k, v) SELECT k, 1 FROM (SELECT * FROM b WHERE k = L) x FULL JOIN r USING (k)",
		"UPDATE a SET k = M WHERE k = L", "INSERT INTO a(k, v) VALUES (L, M), (M, L)",
	})
}

func (g *generator) instantiate(templates []string) string {
	words := strings.Split(g.pick(templates...), " ")
	t, u := g.pick("a", "b"), g.pick("a", "b", "b")
	g.literals = max(g.literals, 2)
	for i, w := range words {
		bare := strings.Trim(w, "(),")
		switch bare {
		case "T":
			words[i] = strings.Replace(w, "T", t, 1)
		case "U":
			words[i] = strings.Replace(w, "U", u, 1)
		case "L":
			words[i] = strings.Replace(w, "L", "{0}", 1)
		case "M":
			words[i] = strings.Replace(w, "M", "{1}", 1)
		}
	}
	return strings.Join(words, " ")
}
