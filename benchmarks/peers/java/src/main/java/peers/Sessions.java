package peers;

import java.time.Duration;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.streaming.api.TimerService;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Visits -> timestamps -> keyBy user -> ValueState with a timer that every event moves. */
class Sessions extends Program.OfVisits {
    private static final long GAP_MS = 30_000;

    @Override
    DataStream<Tuple2<String, Long>> build(DataStream<Tuple4<String, String, Long, Long>> rows) {
        return visits(rows)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Visit>forBoundedOutOfOrderness(Duration.ofDays(1))
                                .withTimestampAssigner((visit, before) -> visit.at))
                .keyBy(visit -> visit.user)
                .process(new SessionsOfUser());
    }

    @Override
    Map<String, Long> greatest(Object[] records) {
        return summed(records, row -> Tuple2.of(row.f0, 1L));
    }

    /** All timers fire at the end of event time: it is less than a day away. */
    @Override
    int outputs(Object[] records) {
        return greatest(records).size();
    }

    static class SessionsOfUser extends KeyedProcessFunction<String, Visit, Tuple2<String, Long>> {
        private transient ValueState<Tuple2<Long, Long>> session;

        @Override
        public void open(OpenContext context) {
            session = getRuntimeContext()
                    .getState(new ValueStateDescriptor<>("session", Types.TUPLE(Types.LONG, Types.LONG)));
        }

        @Override
        public void processElement(Visit visit, Context context, Collector<Tuple2<String, Long>> out)
                throws Exception {
            TimerService timers = context.timerService();
            Tuple2<Long, Long> before = session.value();
            long visits = 0;
            long end = 0;
            if (before != null) {
                visits = before.f0;
                end = before.f1;
                timers.deleteEventTimeTimer(end);
            }
            end = Math.max(end, visit.at + GAP_MS);
            timers.registerEventTimeTimer(end);
            session.update(Tuple2.of(visits + 1, end));
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<Tuple2<String, Long>> out)
                throws Exception {
            long visits = session.value().f0;
            session.clear();
            out.collect(Tuple2.of(context.getCurrentKey(), visits));
        }
    }
}
