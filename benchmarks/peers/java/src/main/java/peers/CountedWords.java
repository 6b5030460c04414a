package peers;

import java.io.Serializable;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.function.ToLongFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;

/** word -> (word, number) -> keyBy -> running sum. */
class CountedWords extends Program<String> {
    private static final int VOCABULARY = 10_000;
    private static final int PICKED = 1 << 17;

    interface NumberOfWord extends ToLongFunction<String>, Serializable {}

    private final NumberOfWord number;

    CountedWords(NumberOfWord number) {
        super(Types.STRING);
        this.number = number;
    }

    /** Words by Zipf's law, over and over; the second task begins at another place. */
    @Override
    Object[] records(int count) {
        double[] weights = new double[VOCABULARY];
        double sum = 0;
        String[] words = new String[VOCABULARY];
        for (int i = 0; i < VOCABULARY; i++) {
            sum += 1.0 / (i + 1);
            weights[i] = sum;
            words[i] = "word-" + i;
        }
        Random random = new Random(11);
        String[] picked = new String[PICKED];
        for (int i = 0; i < PICKED; i++) {
            int place = Arrays.binarySearch(weights, random.nextDouble() * sum);
            picked[i] = words[place < 0 ? -place - 1 : place];
        }
        Object[] records = new Object[count];
        for (int i = 0; i < count; i++) {
            records[i] = picked[(i < count / 2 ? i : i - count / 2 + 7919) % PICKED];
        }
        return records;
    }

    @Override
    DataStream<Tuple2<String, Long>> build(DataStream<String> words) {
        NumberOfWord number = this.number;
        return words.map(word -> Tuple2.of(word, number.applyAsLong(word)))
                .returns(Types.TUPLE(Types.STRING, Types.LONG))
                .keyBy(pair -> pair.f0)
                .reduce((before, pair) -> Tuple2.of(before.f0, before.f1 + pair.f1));
    }

    @Override
    Map<String, Long> greatest(Object[] records) {
        Map<String, Long> sums = new HashMap<>();
        for (Object word : records) {
            sums.merge((String) word, number.applyAsLong((String) word), Long::sum);
        }
        return sums;
    }
}
