package peers;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Main PROGRAM RECORDS: runs it on a few records and compares what comes out, then measures it.
 *
 * <p>Prints {"records": ..., "seconds": ...}. All tasks run in this process, so that they share the
 * clock and the input, which is made before the job starts.
 */
public class Main {
    private static final int CHECKED = 20_000;

    private static volatile Object[] input;
    private static final AtomicLong BEGAN_NS = new AtomicLong();
    private static final AtomicLong ENDED_NS = new AtomicLong();
    private static final AtomicLong OUTPUTS = new AtomicLong();
    private static final Map<String, Long> GREATEST = new ConcurrentHashMap<>();

    public static void main(String[] words) throws Exception {
        Program<?> program = Program.named(words[0]);
        run(program, CHECKED, true);
        if (!GREATEST.equals(new HashMap<>(program.greatest(input)))) {
            throw new IllegalStateException(words[0] + " gives other records");
        }
        int records = Integer.parseInt(words[1]);
        double seconds = run(program, records, false);
        System.out.printf("{\"records\": %d, \"seconds\": %.4f}%n", records, seconds);
        System.exit(0);
    }

    private static <T> double run(Program<T> program, int records, boolean keeps) throws Exception {
        input = program.records(records);
        BEGAN_NS.set(Long.MAX_VALUE);
        ENDED_NS.set(Long.MIN_VALUE);
        OUTPUTS.set(0);
        StreamExecutionEnvironment env = environment();
        DataStream<T> in = env.fromSequence(0, records - 1).map(new Pick<T>()).returns(program.type);
        program.build(in).sinkTo(new CountingSink(keeps));
        env.execute(program.getClass().getSimpleName());
        if (OUTPUTS.get() != program.outputs(input)) {
            throw new IllegalStateException(OUTPUTS.get() + " records came out of " + records);
        }
        return (ENDED_NS.get() - BEGAN_NS.get()) / 1e9;
    }

    /** Two task managers with a slot each: half of every exchange crosses the network stack. */
    private static StreamExecutionEnvironment environment() {
        Configuration settings = new Configuration();
        settings.setString("minicluster.number-of-taskmanagers", "2");
        settings.setString("taskmanager.numberOfTaskSlots", "1");
        settings.setString("taskmanager.load-balance.mode", "TASKS");
        settings.setString("taskmanager.memory.network.min", "128m");
        settings.setString("taskmanager.memory.network.max", "128m");
        settings.setString("restart-strategy.type", "none");
        return StreamExecutionEnvironment.createLocalEnvironment(2, settings);
    }

    /** Gives what was made. */
    static class Pick<T> implements MapFunction<Long, T> {
        private transient Object[] records;

        @Override
        @SuppressWarnings("unchecked")
        public T map(Long place) {
            if (records == null) {
                records = input;
                BEGAN_NS.accumulateAndGet(System.nanoTime(), Math::min);
            }
            return (T) records[(int) (long) place];
        }
    }

    /** Counts what comes, and keeps the greatest value of each key for a check. */
    static class CountingSink implements Sink<Tuple2<String, Long>> {
        private final boolean keeps;

        CountingSink(boolean keeps) {
            this.keeps = keeps;
        }

        @Override
        public SinkWriter<Tuple2<String, Long>> createWriter(WriterInitContext context) {
            return new SinkWriter<>() {
                private long outputs;

                @Override
                public void write(Tuple2<String, Long> record, Context context) {
                    outputs++;
                    if (keeps) {
                        GREATEST.merge(record.f0, record.f1, Math::max);
                    }
                }

                @Override
                public void flush(boolean endOfInput) {
                    if (endOfInput) {
                        ENDED_NS.accumulateAndGet(System.nanoTime(), Math::max);
                        OUTPUTS.addAndGet(outputs);
                        outputs = 0;
                    }
                }

                @Override
                public void close() {}
            };
        }
    }
}
