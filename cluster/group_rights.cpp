#include "cluster/group_rights.hpp"

#include <span>

#include "core/byte_io.hpp"
#include "transport/peer/handshake.hpp"

namespace cenote::cluster {

std::optional<peer::proof> group_rights::proof_of(bind_side side, const instance_spec& spec,
                                                  const peer::ticket& link) const {
  const auto token = tokens.find(spec.paying_group());
  if (token == tokens.end()) return std::nullopt;
  byte_writer writer;
  writer.put_raw(link);
  encode(writer, spec);
  return peer::prove(std::as_bytes(std::span(token->second)),
                     side == bind_side::asker ? "asker of a group" : "home of a group", writer.bytes());
}

std::string group_rights::refusal(bind_side side, const instance_spec& spec, const peer::ticket& link,
                                  const std::optional<peer::proof>& proof) const {
  const std::string& group = spec.paying_group();
  if (const auto right = proof_of(side, spec, link)) {
    if (proof && peer::are_equal(*proof, *right)) return {};
    return "instance group `" + group + "` is restricted: both nodes need the same groups.\"" + group + "\".token";
  }
  const bool is_unnamed_home = side == bind_side::asker && !tokens.empty() && !spec.instance_group.empty();
  return is_unnamed_home ? "this node restricts groups and its configuration does not name `" + group + "`" : "";
}

}  // namespace cenote::cluster
