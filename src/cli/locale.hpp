#pragma once

namespace emm::cli {

/// Does the terminal show UTF-8, as the locale says?
bool speaks_utf8();

}  // namespace emm::cli
