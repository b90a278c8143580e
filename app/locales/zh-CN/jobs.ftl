### 任务列表。

jobs-title = 任务
jobs-title-state = 任务：{ $state }
jobs-loading = 正在加载任务
jobs-all = 全部
jobs-by-state = 按状态查看任务
jobs-new = { $n } 个新任务
jobs-filter = 筛选任务
jobs-filter-go = 筛选
jobs-filter-clear = 清除筛选
jobs-type = 类型
jobs-any-type = 所有类型
jobs-search = 在编号、类型、幂等键、参数、所有者和错误中搜索
jobs-search-hint = 编号、幂等键、参数、错误…
jobs-table-scroll = 任务表，可横向滚动
jobs-table-caption = 任务，最新的在前
jobs-no-longer-matches = 不再符合条件

jobs-none = 还没有任务
jobs-none-text = 可从代码入队，或试用演示导出。
jobs-no-match = 没有符合条件的任务
jobs-no-match-text = 去掉筛选则有 { $n } 个任务。
jobs-no-match-uncounted = 请选择其他状态或类型，或搜索其他文字。
jobs-not-counted = 尚未统计
jobs-past-end = 此页没有内容
jobs-past-end-text = 原先在此的任务已变化或被移除。
jobs-to-newest = 前往最新任务

column-state = 状态
column-job = 任务
column-happening = 当前情况
column-queue = 队列
column-payload = 参数
column-attempt = 尝试
column-run-time = 运行时间
column-changed = 更新
column-actions = 操作

happening-working = 正在处理
happening-stopping = 已要求停止
happening-no-worker = 没有在线 worker 支持此类型
happening-waits = 等待空位
happening-due-in = { $wait }后到时
happening-next-try = { $wait }后重试
happening-next-try-now = 即将重试
happening-finished = 已完成
happening-canceled = 开始前已取消
happening-canceled-in = 取消时所处阶段：{ $stage }

pager-from = 入队时间从
pager-to = 回溯到
pager-stop = 。
pager-matches = 共 { $n } 个任务符合条件。
pager-not-counted = 尚未统计符合条件的任务数。
pager-rows = 每页行数
pager-pages = 翻页
pager-newer = 较新
pager-older = 较早
