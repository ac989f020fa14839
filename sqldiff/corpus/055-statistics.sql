SELECT variance(quantity), var_pop(quantity), var_samp(quantity) FROM items;
SELECT stddev(quantity), stddev_pop(quantity), stddev_samp(quantity) FROM items;
SELECT variance(total), stddev(total) FROM orders;
SELECT stddev(id), variance(id) FROM orders;
--@ approx
SELECT variance(value), stddev(value), var_pop(value), stddev_pop(value) FROM events;
--@ approx
SELECT corr(value, seq), covar_pop(value, seq), covar_samp(value, seq) FROM events;
--@ approx
SELECT regr_slope(value, seq), regr_intercept(value, seq), regr_r2(value, seq) FROM events;
--@ approx
SELECT regr_avgx(value, seq), regr_avgy(value, seq), regr_count(value, seq) FROM events;
--@ approx
SELECT regr_sxx(value, seq), regr_syy(value, seq), regr_sxy(value, seq) FROM events;
--@ approx
SELECT kind, stddev(value), variance(value) FROM events GROUP BY kind;
SELECT status, stddev(total), variance(total) FROM orders GROUP BY status;
SELECT customer_id, stddev(total) FROM orders GROUP BY customer_id HAVING count(*) > 2;
SELECT stddev(total) FROM orders WHERE id = 1;
SELECT var_pop(total) FROM orders WHERE id = 1;
SELECT stddev(amount) FROM returns;
SELECT mode() WITHIN GROUP (ORDER BY status) FROM orders WHERE status <> 'paid' AND id < 20;
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY quantity) FROM items;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY total) FROM orders;
SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY name) FROM customers;
SELECT percentile_cont(ARRAY[0.1, 0.5, 0.9]) WITHIN GROUP (ORDER BY value) FROM events;
SELECT percentile_disc(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY total DESC) FROM orders;
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY at - timestamp '2021-01-01') FROM events;
SELECT kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY value) FROM events GROUP BY kind;
SELECT customer_id, percentile_disc(0.5) WITHIN GROUP (ORDER BY total) FROM orders GROUP BY customer_id;
SELECT rank(100) WITHIN GROUP (ORDER BY total) FROM orders;
SELECT dense_rank(100) WITHIN GROUP (ORDER BY total DESC) FROM orders;
SELECT percent_rank(100) WITHIN GROUP (ORDER BY total) FROM orders;
SELECT cume_dist(100) WITHIN GROUP (ORDER BY total) FROM orders;
SELECT rank(100, 'm') WITHIN GROUP (ORDER BY total, note) FROM orders;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY total) FILTER (WHERE status = 'paid') FROM orders;
--@ error
SELECT percentile_cont(2) WITHIN GROUP (ORDER BY quantity) FROM items;
