import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.NamespaceDescriptor;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/** Makes a namespace, which Thrift 1 has no call for. Run as a source file; the configuration is on the class path. */
public class HBaseNamespace {
    public static void main(String[] names) throws Exception {
        try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
                Admin admin = connection.getAdmin()) {
            for (String name : names) {
                admin.createNamespace(NamespaceDescriptor.create(name).build());
            }
        }
    }
}
