#include "weft/topology/yaml.h"

#include "weft/topology/describe.h"

namespace weft::topology {

Cluster parse_cluster(const std::string& text, const std::string& file) {
  Cluster cluster;
  const spec::Where where = spec::read_document(
      text, file, [&cluster](spec::Visitor& visitor) { visit(visitor, cluster); });
  check_at(cluster, where);
  return cluster;
}

Cluster load_cluster(const std::string& path) {
  return parse_cluster(spec::read_config_file(path, "cluster"), path);
}

std::string to_yaml(const Cluster& cluster) {
  Cluster copy = cluster;
  return spec::write_document([&copy](spec::Visitor& visitor) { visit(visitor, copy); });
}

}  // namespace weft::topology
