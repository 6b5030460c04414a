package peers;

import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.streaming.api.datastream.DataStream;

/** What benchmarks/ordinary_programs.py has under the same name. */
abstract class Program<T> {
    final TypeInformation<T> type;

    Program(TypeInformation<T> type) {
        this.type = type;
    }

    /** Input, the first half for the first task, in the order of event time in each half. */
    abstract Object[] records(int count);

    abstract DataStream<Tuple2<String, Long>> build(DataStream<T> in);

    /** The greatest value of each key that comes out. */
    abstract Map<String, Long> greatest(Object[] records);

    /** How many records come out. */
    int outputs(Object[] records) {
        return records.length;
    }

    static Program<?> named(String name) {
        switch (name) {
            case "count-words":
                return new CountedWords(word -> 1L);
            case "count-lengths":
                return new CountedWords(word -> (long) word.length());
            case "two-exchanges":
                return new TwoExchanges();
            case "sessions":
                return new Sessions();
            default:
                throw new IllegalArgumentException("there is no program " + name);
        }
    }

    /** Programs that read (user, page, ms, at). */
    abstract static class OfVisits extends Program<Tuple4<String, String, Long, Long>> {
        OfVisits() {
            super(Types.TUPLE(Types.STRING, Types.STRING, Types.LONG, Types.LONG));
        }

        /** Few users do much; two records of a task are 10 ms apart. */
        @Override
        Object[] records(int count) {
            Object[] rows = new Object[count];
            int half = count / 2;
            for (int task = 0; task < 2; task++) {
                Random random = new Random(task);
                for (int i = task * half; i < (task == 0 ? half : count); i++) {
                    double pareto = Math.pow(1.0 - random.nextDouble(), -1 / 0.6);
                    String user = "user-" + (int) (Math.floor(pareto) % 5000);
                    long at = 1_700_000_000_000L + (i - task * half) * 10L;
                    String page = "page-" + random.nextInt(20);
                    rows[i] = Tuple4.of(user, page, (long) random.nextInt(5000), at);
                }
            }
            return rows;
        }

        static DataStream<Visit> visits(DataStream<Tuple4<String, String, Long, Long>> rows) {
            return rows.map(row -> new Visit(row.f0, row.f1, row.f2, row.f3))
                    .returns(Types.POJO(Visit.class));
        }

        @SuppressWarnings("unchecked")
        Map<String, Long> summed(
                Object[] records, java.util.function.Function<Tuple4<String, String, Long, Long>, Tuple2<String, Long>> pair) {
            Map<String, Long> sums = new HashMap<>();
            for (Object record : records) {
                Tuple2<String, Long> made = pair.apply((Tuple4<String, String, Long, Long>) record);
                sums.merge(made.f0, made.f1, Long::sum);
            }
            return sums;
        }
    }
}
