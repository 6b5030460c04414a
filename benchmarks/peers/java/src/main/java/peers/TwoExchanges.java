package peers;

import java.util.Map;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** Visits -> keyBy user -> MapState -> (page, ms, times) -> keyBy page -> ValueState. */
class TwoExchanges extends Program.OfVisits {
    @Override
    DataStream<Tuple2<String, Long>> build(DataStream<Tuple4<String, String, Long, Long>> rows) {
        return visits(rows)
                .keyBy(visit -> visit.user)
                .process(new PagesOfUser())
                .keyBy(visited -> visited.f0)
                .process(new TimeOnPage());
    }

    @Override
    Map<String, Long> greatest(Object[] records) {
        return summed(records, row -> Tuple2.of(row.f1, row.f2));
    }

    static class PagesOfUser extends KeyedProcessFunction<String, Visit, Tuple3<String, Long, Long>> {
        private transient MapState<String, Long> pages;

        @Override
        public void open(OpenContext context) {
            pages = getRuntimeContext().getMapState(new MapStateDescriptor<>("pages", Types.STRING, Types.LONG));
        }

        @Override
        public void processElement(Visit visit, Context context, Collector<Tuple3<String, Long, Long>> out)
                throws Exception {
            Long before = pages.get(visit.page);
            long times = (before == null ? 0 : before) + 1;
            pages.put(visit.page, times);
            out.collect(Tuple3.of(visit.page, visit.ms, times));
        }
    }

    static class TimeOnPage
            extends KeyedProcessFunction<String, Tuple3<String, Long, Long>, Tuple2<String, Long>> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.LONG));
        }

        @Override
        public void processElement(
                Tuple3<String, Long, Long> visited, Context context, Collector<Tuple2<String, Long>> out)
                throws Exception {
            Long before = total.value();
            long now = (before == null ? 0 : before) + visited.f1;
            total.update(now);
            out.collect(Tuple2.of(visited.f0, now));
        }
    }
}
