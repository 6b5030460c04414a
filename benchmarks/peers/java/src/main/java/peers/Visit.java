package peers;

/** A POJO, as Flink understands it. */
public class Visit {
    public String user;
    public String page;
    public long ms;
    public long at;

    public Visit() {}

    public Visit(String user, String page, long ms, long at) {
        this.user = user;
        this.page = page;
        this.ms = ms;
        this.at = at;
    }
}
