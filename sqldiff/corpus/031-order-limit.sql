SELECT id FROM customers ORDER BY id LIMIT ALL;
SELECT id FROM customers ORDER BY id LIMIT NULL OFFSET NULL;
SELECT id FROM orders ORDER BY id OFFSET 9223372036854775807;
SELECT id FROM orders ORDER BY id LIMIT 9223372036854775807 OFFSET 125;
SELECT id FROM orders ORDER BY id LIMIT 0;
SELECT status FROM orders ORDER BY status FETCH FIRST 1 ROW WITH TIES;
SELECT status FROM orders ORDER BY status OFFSET 3 ROWS FETCH NEXT 2 ROWS WITH TIES;
SELECT customer_id FROM orders ORDER BY customer_id FETCH FIRST ROW WITH TIES;
SELECT id, name FROM customers ORDER BY name, id;
SELECT id, name FROM customers ORDER BY lower(name) COLLATE "C" DESC, id LIMIT 10;
SELECT id, total AS t FROM orders ORDER BY t NULLS FIRST, id LIMIT 12;
SELECT id, total FROM orders ORDER BY -total NULLS LAST, id LIMIT 5;
SELECT id FROM orders ORDER BY total > 100, note IS NULL, id LIMIT 30;
SELECT id FROM orders ORDER BY status USING >, id LIMIT 10;
SELECT id FROM orders ORDER BY CASE status WHEN 'paid' THEN 1 WHEN 'new' THEN 2 END NULLS FIRST, id;
SELECT DISTINCT status, note FROM orders ORDER BY note NULLS FIRST, status LIMIT 6;
SELECT DISTINCT customer_id FROM orders ORDER BY customer_id DESC LIMIT 4 OFFSET 2;
SELECT DISTINCT ON (status, note) status, note, id FROM orders ORDER BY status, note, total DESC NULLS LAST, id;
SELECT DISTINCT ON (customer_id) customer_id, id, total FROM orders ORDER BY customer_id, total DESC NULLS LAST, id LIMIT 8;
SELECT DISTINCT ON (lower(name)) id FROM customers ORDER BY lower(name), id DESC;
SELECT id FROM (SELECT id FROM orders ORDER BY total DESC NULLS LAST, id LIMIT 20) q ORDER BY id LIMIT 5;
SELECT count(*) FROM (SELECT id FROM orders ORDER BY id LIMIT 20 OFFSET 120) q;
SELECT max(id) FROM (SELECT id FROM orders ORDER BY id LIMIT 20) q;
SELECT id, count(*) OVER () FROM orders ORDER BY id LIMIT 3;
SELECT o.id FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY c.name, o.id LIMIT 10 OFFSET 5;
--@ error
SELECT id FROM orders LIMIT -1;
--@ error
SELECT id FROM orders OFFSET -1;
--@ error
SELECT id FROM orders ORDER BY 5;
--@ error
SELECT DISTINCT id FROM orders ORDER BY total;
--@ error
SELECT id FROM orders FETCH FIRST 2 ROWS WITH TIES;
