// The table of what Redis and Valkey answer instead of a result.
#include "transport/redis/reply_errors.hpp"

#include <array>

#include "core/text.hpp"

namespace cenote::redis {

namespace {

struct known_reply {
  std::string_view begin;
  reply_failure meaning;
  std::string_view advice;
};

constexpr std::string_view password_advice =
    "write the password, or user:password, into a file that only its owner can read, and name that file";

constexpr std::string_view cluster_advice =
    "it is a Redis Cluster, which is not spoken here: name servers that stand alone";

constexpr std::array known_replies{
    known_reply{"OOM ", reply_failure::full, "raise maxmemory, or let it evict: maxmemory-policy allkeys-lru"},
    known_reply{"MISCONF", reply_failure::full, "it cannot save to its disk; see its log, or turn its snapshots off"},
    known_reply{"NOREPLICAS", reply_failure::full, "it has fewer replicas than min-replicas-to-write asks for"},
    known_reply{"ERR Protocol error: invalid bulk length", reply_failure::too_big,
                "raise its proto-max-bulk-len above the size of a block, or use smaller blocks"},
    known_reply{"READONLY", reply_failure::away, "it is a read-only replica: name its primary"},
    known_reply{"LOADING", reply_failure::away, "it reads its data set; it is tried again"},
    known_reply{"MASTERDOWN", reply_failure::away, "it is a replica without its primary: name the primary"},
    known_reply{"BUSY ", reply_failure::away, "a script runs there; it is tried again"},
    known_reply{"NOAUTH", reply_failure::away, password_advice},
    known_reply{"WRONGPASS", reply_failure::away, password_advice},
    known_reply{"ERR invalid password", reply_failure::away, password_advice},
    known_reply{"ERR AUTH", reply_failure::away, "it has no password for this user: name no file with one"},
    known_reply{"ERR Client sent AUTH", reply_failure::away, "it has no password: name no file with one"},
    known_reply{
        "NOPERM", reply_failure::away,
        "its ACL must allow get, set, exists, del, eval, info, ping and select on keys that begin with the prefix"},
    known_reply{"ERR DB index", reply_failure::away, "name a database that it has (its setting `databases`)"},
    known_reply{"ERR SELECT is not allowed", reply_failure::away, cluster_advice},
    known_reply{"ERR max number of clients", reply_failure::away, "raise its maxclients"},
    known_reply{"MOVED", reply_failure::away, cluster_advice},
    known_reply{"ASK ", reply_failure::away, cluster_advice},
    known_reply{"CROSSSLOT", reply_failure::away, cluster_advice},
    known_reply{"CLUSTERDOWN", reply_failure::away, cluster_advice},
};

/// The answer of a command in a script, which Redis before 7 wraps.
std::string_view without_script(std::string_view reply) noexcept {
  if (!reply.starts_with("ERR Error running script")) return reply;
  const auto command = reply.find(": -");
  return command == std::string_view::npos ? reply : reply.substr(command + 3);
}

const known_reply* find_reply(std::string_view reply) noexcept {
  reply = without_script(reply);
  for (const known_reply& each : known_replies) {
    if (reply.starts_with(each.begin)) return &each;
  }
  return nullptr;
}

}  // namespace

reply_failure meaning_of(std::string_view reply) noexcept {
  const known_reply* known = find_reply(reply);
  return known != nullptr ? known->meaning : reply_failure::away;
}

bool is_of_cluster(std::string_view reply) noexcept {
  const known_reply* known = find_reply(reply);
  return known != nullptr && known->advice == cluster_advice;
}

std::string explained(std::string_view reply) {
  constexpr std::size_t most_shown = 200;
  // Behind that stand the words of the command, which may be a password.
  if (const auto words = reply.find(", with args"); words != std::string_view::npos) reply = reply.substr(0, words);
  std::string text = printable(cut_text(reply, most_shown));
  if (const known_reply* known = find_reply(reply)) text += " (" + std::string(known->advice) + ")";
  return text;
}

}  // namespace cenote::redis
