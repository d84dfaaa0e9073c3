// systemd's notification protocol: a datagram to $NOTIFY_SOCKET.
#pragma once

#include <string_view>

namespace cenote {

/// Sends assignments separated by newlines ("READY=1\nSTATUS=serving"). Nothing happens outside systemd; failures are
/// ignored, as sd_notify recommends. Not thread-safe against setenv.
void notify_service_manager(std::string_view assignments) noexcept;

/// As above for a reload or an upgrade: adds RELOADING=1 and the monotonic time that systemd wants with it.
void notify_reloading(std::string_view status) noexcept;

}  // namespace cenote
