/// These tests put what carries messages in words: from names of components, and of this job.
#include <string>

#include <gtest/gtest.h>

#include "tests/comm/mpi_main.h"
#include "weft/comm/mpi/find_carrier.h"

namespace weft::comm {
namespace {

MpiComponents components_of(const std::string& pml) {
  return {.library = "Open MPI v4",
          .pml = {pml},
          .mtl = {"ofi"},
          .btl = {"tcp", "vader", "self"},
          .interfaces = {"eth0", "eth1"},
          .environment = {}};
}

TEST(MpiCarrier, OfTcp) {
  const Carrier carrier = carrier_of(components_of("ob1"));
  EXPECT_EQ(carrier.between_hosts, "Open MPI v4, ob1 over tcp (eth0, eth1)");
  EXPECT_EQ(carrier.inside_hosts, "Open MPI v4, ob1 over vader");
  EXPECT_TRUE(carrier.sockets);
}

TEST(MpiCarrier, OfTcpInsideHostsToo) {
  MpiComponents components = components_of("ob1");
  components.btl = {"self", "tcp"};
  EXPECT_EQ(carrier_of(components).inside_hosts, "Open MPI v4, ob1 over tcp (eth0, eth1)");
}

TEST(MpiCarrier, OfAnotherNetworkBesideTcp) {
  MpiComponents components = components_of("ob1");
  components.btl = {"openib", "tcp", "self"};
  EXPECT_EQ(carrier_of(components).between_hosts, "Open MPI v4, ob1 over openib, tcp (eth0, eth1)");
  EXPECT_FALSE(carrier_of(components).sockets) << "messages may go by the other";
}

TEST(MpiCarrier, OfUcxAndLibfabric) {
  MpiComponents ucx = components_of("ucx");
  ucx.environment = {"UCX_NET_DEVICES=mlx5_0:1"};
  EXPECT_EQ(carrier_of(ucx).between_hosts, "Open MPI v4, ucx (UCX_NET_DEVICES=mlx5_0:1)");
  EXPECT_FALSE(carrier_of(ucx).sockets);
  const MpiComponents ofi = components_of("cm");
  EXPECT_EQ(carrier_of(ofi).between_hosts, "Open MPI v4, cm over ofi");
  EXPECT_EQ(carrier_of(ofi).inside_hosts, "Open MPI v4, cm over ofi");
}

TEST(MpiCarrier, OfALibraryThatShowsNothing) {
  MpiComponents unknown = components_of("ob1");
  unknown.pml.clear();
  EXPECT_EQ(carrier_of(unknown).between_hosts, "Open MPI v4");
  EXPECT_FALSE(carrier_of(unknown).sockets);
}

TEST(MpiCarrier, OfThisJob) {
  const Carrier carrier = testing::world()->carrier();
  EXPECT_FALSE(carrier.empty());
  EXPECT_FALSE(carrier.inside_hosts.empty());
  const MpiComponents found = find_components();
  EXPECT_FALSE(found.library.empty());
  if (found.library.starts_with("Open MPI")) {
    EXPECT_EQ(found.pml.size(), 1U) << "one matches messages";
    EXPECT_EQ(carrier.between_hosts.rfind(found.library + ", ", 0), 0U) << carrier.between_hosts;
  }
}

}  // namespace
}  // namespace weft::comm
