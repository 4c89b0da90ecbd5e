/// Private to comm/mpi: which of its components MPI has chosen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/comm/carrier.h"

namespace weft::comm {

/// What MPI's tool interface shows, by the names that Open MPI gives. Other libraries have none.
struct MpiComponents {
  std::string library;                   ///< "Open MPI v4.1.4"
  std::vector<std::string> pml;          ///< what matches messages: "ob1", "ucx", "cm"
  std::vector<std::string> mtl;          ///< below cm: "ofi", "psm2"
  std::vector<std::string> btl;          ///< below ob1: "self", "vader", "tcp"
  std::vector<std::string> interfaces;   ///< of tcp
  std::vector<std::string> environment;  ///< settings of UCX and libfabric: "UCX_TLS=rc,self"
};

/// Asks MPI, which has been initialised. Of its components those that it has closed are not there.
MpiComponents find_components();

/// Puts them in words.
Carrier carrier_of(const MpiComponents& components);

}  // namespace weft::comm
