// The functions of UCX, loaded while the program runs: UCX reads its environment and places signal handlers when it is
// loaded, so a process that needs no network should not load it, and one that does has to set the environment first.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace cenote::ucx {

// clang-format off
#define CENOTE_UCX_FUNCTIONS(each)                                                                                   \
  each(ucp_init_version) each(ucp_cleanup) each(ucp_config_read) each(ucp_config_modify) each(ucp_config_release)    \
  each(ucp_worker_create) each(ucp_worker_destroy) each(ucp_worker_progress) each(ucp_worker_get_efd)                \
  each(ucp_worker_arm) each(ucp_worker_set_am_recv_handler)                                                          \
  each(ucp_listener_create) each(ucp_listener_query) each(ucp_listener_reject) each(ucp_listener_destroy)            \
  each(ucp_conn_request_query)                                                                                       \
  each(ucp_ep_create) each(ucp_ep_close_nbx) each(ucp_ep_flush_nbx) each(ucp_am_send_nbx)                            \
  each(ucp_request_free) each(ucp_request_check_status) each(ucs_status_string)
// clang-format on

/// One member a function, of the same name and type. They are as thread-safe as UCX says.
struct library {
// NOLINTNEXTLINE(bugprone-macro-parentheses): g++ wants none in a declaration
#define CENOTE_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  CENOTE_UCX_FUNCTIONS(CENOTE_UCX_MEMBER)
#undef CENOTE_UCX_MEMBER
};

/// Variables of the environment that UCX reads when it is loaded: name and value.
using environment = std::vector<std::pair<std::string, std::string>>;

/// Sets `variables` in the environment of this process and loads UCX, which stays loaded until the process ends: the
/// first call does, and is to be made while no other thread reads the environment.
/// Errors: unsupported: there is no such library, or it lacks a function, which is named.
[[nodiscard]] result<std::shared_ptr<const library>> load_library(const environment& variables);

}  // namespace cenote::ucx
