#include "worker/access.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace cenote {

namespace {

/// True when the peer is in group `wanted`, by its primary or a supplementary group.
bool is_in_group(int socket, const local::peer_credentials& peer, gid_t wanted) {
  if (peer.gid == wanted) return true;
  std::array<gid_t, 256> groups{};
  socklen_t bytes = sizeof groups;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) return false;
  const auto end = groups.begin() + static_cast<std::ptrdiff_t>(bytes / sizeof(gid_t));
  return std::find(groups.begin(), end, wanted) != end;
}

/// Compares without telling by its time how much was right.
bool same_token(std::string_view a, std::string_view b) noexcept {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace

bool may_attach(const connection& connection, const config::node_config& config) {
  const auto& auth = config.auth;
  if (connection.peer.uid == ::geteuid()) return true;
  if (auth.allow_uids.empty() && auth.allow_gids.empty()) return connection.peer.uid == 0;
  if (std::find(auth.allow_uids.begin(), auth.allow_uids.end(), connection.peer.uid) != auth.allow_uids.end())
    return true;
  return std::any_of(auth.allow_gids.begin(), auth.allow_gids.end(),
                     [&](gid_t gid) { return is_in_group(connection.socket.get(), connection.peer, gid); });
}

bool may_administrate(const connection& connection, const config::node_config& config) {
  if (connection.peer.uid == ::geteuid() || connection.peer.uid == 0) return true;
  const auto admin = config.auth.admin_gid;
  return admin && is_in_group(connection.socket.get(), connection.peer, *admin);
}

error may_not_attach(uid_t uid) {
  return {error_code::permission_denied, "uid " + std::to_string(uid) +
                                             " may not attach; add it to auth.allow_uids, or a group of it to "
                                             "auth.allow_gids"};
}

result<void> check_group(const connection& connection, const local::attach_request& request,
                         const config::node_config& config) {
  const auto group = config.groups.find(request.spec.paying_group());
  if (group == config.groups.end()) return {};
  const auto& uids = group->second.uids;
  if (!uids.empty() && std::ranges::find(uids, connection.peer.uid) == uids.end()) {
    return fail(error_code::permission_denied, "uid " + std::to_string(connection.peer.uid) +
                                                   " may not name instance group `" + group->first + "`; groups.\"" +
                                                   group->first + "\".uids has those who may");
  }
  if (!group->second.token.empty() && !same_token(group->second.token, request.token)) {
    return fail(error_code::permission_denied,
                "instance group `" + group->first + "` needs a token, and this is not it");
  }
  return {};
}

}  // namespace cenote
