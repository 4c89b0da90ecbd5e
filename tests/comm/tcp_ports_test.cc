// Whether a host has the ports that messages over TCP need.
#include "weft/comm/mpi/tcp_ports.h"

#include <string>

#include <gtest/gtest.h>

namespace weft::comm {
namespace {

TEST(TcpPorts, AHostOfFewConnectionsHasEnough) {
  const PortRange range{32768, 60999};
  EXPECT_EQ(range.count(), 28232);
  EXPECT_FALSE(port_shortage({.here = 8, .elsewhere = 0}, range));
  EXPECT_FALSE(port_shortage({.here = 8, .elsewhere = 3529}, range)) << "28,232 exactly";
  EXPECT_TRUE(port_shortage({.here = 8, .elsewhere = 3530}, range));
  EXPECT_FALSE(port_shortage({.here = 8, .elsewhere = 4088}, {1024, 65535}));
}

TEST(TcpPorts, AShortageSaysTheLimitTheNeedAndWhatToDo) {
  const auto text = port_shortage({.here = 8, .elsewhere = 4088}, {32768, 60999});
  ASSERT_TRUE(text);
  for (const char* part :
       {"8 ranks of a host", "4088 ranks of other hosts", "32704 connections", "28232 ports",
        "net.ipv4.ip_local_port_range is 32768 to 60999", "'1024 65535' on every host"}) {
    EXPECT_NE(text->find(part), std::string::npos) << part << " is not in: " << *text;
  }
}

TEST(TcpPorts, TheRangeIsReadAsTheKernelWritesIt) {
  const auto range = read_port_range("32768\t60999\n");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 32768);
  EXPECT_EQ(range->last, 60999);
  for (const char* text : {"", "32768", "60999 32768", "a b", "0 5"}) {
    EXPECT_FALSE(read_port_range(text)) << text;
  }
}

TEST(TcpPorts, FewerPortsThanRanksToListenAreNamed) {
  const auto text = listening_shortage("4", "8");
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("8 ranks of this host listen"), std::string::npos) << *text;
  EXPECT_NE(text->find("btl_tcp_port_range has 4: set it to 8 or more"), std::string::npos);
  EXPECT_FALSE(listening_shortage("8", "8"));
  EXPECT_FALSE(listening_shortage(nullptr, "8"));
  EXPECT_FALSE(listening_shortage("4", nullptr));
  EXPECT_FALSE(listening_shortage("4 to 8", "8")) << "Open MPI says that itself";
}

}  // namespace
}  // namespace weft::comm
