#include "weft/comm/mpi/find_carrier.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/comm/mpi/mpi_calls.h"

namespace weft::comm {
namespace {

constexpr std::size_t kLongestName = 512;

/// The library's first words, up to a comma or the end of the line.
std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS || length <= 0) {
    return "MPI";
  }
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

void add_once(std::vector<std::string>& names, std::string_view name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    names.emplace_back(name);
  }
}

/// "ompi_pml_ob1" is component ob1 where `framework` is "ompi_pml_".
void add_component(std::string_view category,
                   std::string_view framework,
                   std::vector<std::string>& names) {
  if (category.starts_with(framework) && category != fmt::format("{}base", framework)) {
    add_once(names, category.substr(framework.size()));
  }
}

void read_categories(MpiComponents& components) {
  int categories = 0;
  if (MPI_T_category_get_num(&categories) != MPI_SUCCESS) {
    return;
  }
  for (int i = 0; i < categories; ++i) {
    std::array<char, kLongestName> name{};
    int name_length = kLongestName;
    int no_length = 0;
    int variables = 0;
    int performance = 0;
    int below = 0;
    if (MPI_T_category_get_info(i, name.data(), &name_length, nullptr, &no_length, &variables,
                                &performance, &below) != MPI_SUCCESS) {
      continue;
    }
    add_component(name.data(), "ompi_pml_", components.pml);
    add_component(name.data(), "ompi_mtl_", components.mtl);
    add_component(name.data(), "opal_btl_", components.btl);
  }
}

/// Open MPI makes a variable for each interface that its tcp component has found fit.
void read_interfaces(MpiComponents& components) {
  constexpr std::string_view kPrefix = "btl_tcp_latency_";
  int variables = 0;
  if (MPI_T_cvar_get_num(&variables) != MPI_SUCCESS) {
    return;
  }
  for (int i = 0; i < variables; ++i) {
    std::array<char, kLongestName> name{};
    int name_length = kLongestName;
    int no_length = 0;
    int verbosity = 0;
    int bind = 0;
    int scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    if (MPI_T_cvar_get_info(i, name.data(), &name_length, &verbosity, &type, nullptr, nullptr,
                            &no_length, &bind, &scope) != MPI_SUCCESS) {
      continue;
    }
    const std::string_view found(name.data());
    // "eth0:0" is the first link of eth0.
    if (found.starts_with(kPrefix) && found.find(':') == std::string_view::npos) {
      add_once(components.interfaces, found.substr(kPrefix.size()));
    }
  }
}

bool is_inside_hosts(std::string_view btl) {
  return btl == "self" || btl == "vader" || btl == "sm" || btl == "smcuda";
}

/// " (a, b)"; nothing where there is nothing.
std::string in_brackets(const std::vector<std::string>& words) {
  return words.empty() ? "" : fmt::format(" ({})", fmt::join(words, ", "));
}

}  // namespace

MpiComponents find_components() {
  MpiComponents components{.library = library_version(),
                           .pml = {},
                           .mtl = {},
                           .btl = {},
                           .interfaces = {},
                           .environment = {}};
  for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA"}) {
    if (const char* value = std::getenv(name)) {
      components.environment.push_back(fmt::format("{}={}", name, value));
    }
  }
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    return components;
  }
  read_categories(components);
  read_interfaces(components);
  MPI_T_finalize();
  return components;
}

Carrier carrier_of(const MpiComponents& components) {
  if (components.pml.size() != 1) {  // of no name that is known here
    return {
        .between_hosts = components.library, .inside_hosts = components.library, .sockets = false};
  }
  const std::string& pml = components.pml.front();
  const std::string settings = in_brackets(components.environment);
  if (pml != "ob1") {
    std::string text = fmt::format("{}, {}", components.library, pml);
    if (pml == "cm") {
      text += fmt::format(" over {}", fmt::join(components.mtl, ", "));
    }
    return {.between_hosts = text + settings, .inside_hosts = text + settings, .sockets = false};
  }
  std::vector<std::string> network;
  std::vector<std::string> shared;
  for (const std::string& btl : components.btl) {
    if (!is_inside_hosts(btl)) {
      network.push_back(btl);
    } else if (btl != "self") {
      shared.push_back(btl);
    }
  }
  const bool has_tcp = std::find(network.begin(), network.end(), "tcp") != network.end();
  const std::string between = fmt::format(
      "{}, ob1 over {}{}", components.library,
      network.empty() ? std::string("nothing") : fmt::format("{}", fmt::join(network, ", ")),
      has_tcp ? in_brackets(components.interfaces) : "");
  return {.between_hosts = between,
          .inside_hosts = shared.empty() ? between
                                         : fmt::format("{}, ob1 over {}", components.library,
                                                       fmt::join(shared, ", ")),
          .sockets = has_tcp && network.size() == 1};
}

}  // namespace weft::comm
