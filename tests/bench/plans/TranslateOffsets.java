import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** MirrorMaker's own translation of a group's offsets: HOST:PORT ALIAS GROUP PARTITIONS. */
public class TranslateOffsets {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", args[0]);
        int found = RemoteClusterUtils.translateOffsets(settings, args[1], args[2], Duration.ofSeconds(30)).size();
        if (found != Integer.parseInt(args[3])) {
            throw new IllegalStateException(found + " translated");
        }
    }
}
